// The far web servers.

package internet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"
)

// startWeb serves HTTP on port 80 and HTTPS on port 443 of ip, or HTTP alone
// where ip has a port.
func (in *Internet) startWeb(ip string) error {
	if strings.Count(ip, ":") == 1 {
		return in.serveWeb(ip, nil)
	}
	conf := &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		name := h.ServerName
		if name == "" {
			name = "nameless.invalid"
		}
		// Recorded as soon as the name is here: a handshake that the gate
		// lets through and then ends has been let through.
		in.record(Hit{At: h.Conn.LocalAddr().String(), Net: "tls", SNI: name})
		return in.ca.leaf(name)
	}}
	if err := in.serveWeb(ip+":80", nil); err != nil {
		return err
	}
	return in.serveWeb(ip+":443", conf)
}

func (in *Internet) serveWeb(addr string, conf *tls.Config) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("start a far server: %w", err)
	}
	l = recording{l, in}
	if conf != nil {
		l = tls.NewListener(l, conf)
	}
	s := &http.Server{
		Handler: http.HandlerFunc(in.answer), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0), // hellos that the gate cut off
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, atKey{}, c.LocalAddr().String())
		},
	}
	in.onClose(s.Close)
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			in.record(Hit{At: addr, Data: "server ended: " + err.Error()})
		}
	}()
	return nil
}

type atKey struct{}

// recording records each connection as it comes.
type recording struct {
	net.Listener
	in *Internet
}

func (r recording) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err == nil {
		r.in.record(Hit{At: c.LocalAddr().String(), Net: "tcp"})
	}
	return c, err
}

// answer tells the marker, and what was asked.
func (in *Internet) answer(w http.ResponseWriter, r *http.Request) {
	h := Hit{Net: "http", Host: r.Host, Path: r.URL.RequestURI(),
		Via: strings.Join([]string{r.Header.Get("Via"), r.Header.Get("Forwarded"), r.Header.Get("X-Forwarded-For")}, "")}
	h.At, _ = r.Context().Value(atKey{}).(string)
	if r.TLS != nil {
		h.SNI = r.TLS.ServerName
	}
	in.record(h)
	if rest, ok := strings.CutPrefix(r.URL.Path, "/files/"); ok && in.root != "" {
		r.URL.Path = "/" + rest
		http.FileServer(http.Dir(in.root)).ServeHTTP(w, r)
		return
	}
	switch r.URL.Path {
	case "/open": // an answer that does not end
		fmt.Fprintln(w, "begun")
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		<-r.Context().Done()
		return
	case "/silent": // none
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "%s %s\n", in.Marker, r.Host)
}
