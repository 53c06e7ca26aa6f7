// A server, for tests of published ports.

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// serve listens at the addresses and answers every request with the token and with
// who it runs as. It ends with its standard input.
func serve(token string, addrs []string) {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(rw http.ResponseWriter, _ *http.Request) {
		status, _ := os.ReadFile("/proc/self/status") // the test misses it
		fmt.Fprintf(rw, "%s\n%s", token, status)
	})
	// In two parts, of which the second waits until the first has been said to be there.
	seen := make(chan struct{})
	mux.HandleFunc("/stream", func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(rw, "first", token)
		_ = http.NewResponseController(rw).Flush() // likewise
		<-seen
		fmt.Fprintln(rw, "second", token)
	})
	mux.HandleFunc("/seen", func(http.ResponseWriter, *http.Request) { seen <- struct{}{} })
	// As a websocket begins; then it says everything back, and "bye" at the end.
	mux.HandleFunc("/upgrade", func(rw http.ResponseWriter, _ *http.Request) {
		c, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(c, buf)
		io.WriteString(c, "bye "+token)
	})
	mux.HandleFunc("/reset", func(rw http.ResponseWriter, _ *http.Request) {
		if c, _, err := http.NewResponseController(rw).Hijack(); err == nil {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut")
			_ = c.(*net.TCPConn).SetLinger(0) // a reset
			time.Sleep(100 * time.Millisecond)
			c.Close()
		}
	})
	for _, addr := range addrs {
		network := "tcp4"
		if strings.HasPrefix(addr, "[") {
			network = "tcp6"
		}
		l, err := net.Listen(network, addr)
		if err != nil {
			fmt.Println("serve", addr, err)
			os.Exit(1)
		}
		go http.Serve(l, mux)
	}
	fmt.Println("serving", token)
	io.Copy(io.Discard, os.Stdin)
}
