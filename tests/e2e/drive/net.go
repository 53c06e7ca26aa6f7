// What is asked of a published port.

package drive

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// FreePort is a port of 127.0.0.1 that nobody listens at.
func FreePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// Fetched is the status and body of an answer, or the error, without any proxy.
func Fetched(url string) (int, string) {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, string(b) + err.Error()
	}
	return resp.StatusCode, string(b)
}

// Answers waits until a server inside answers at a place outside.
func (l *Live) Answers(t *testing.T, url string) string {
	t.Helper()
	var code int
	var body string
	for deadline := time.Now().Add(time.Minute); code != 200; time.Sleep(20 * time.Millisecond) {
		if code, body = Fetched(url); code != 200 && time.Now().After(deadline) {
			t.Fatalf("%s does not answer: %s\n%s", url, body, Tail(l.Err.String()))
		}
	}
	return body
}
