// Sending a row, and judging what came of it.

package gatetest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience is how long a client waits for an answer or an end. It is longer than
// any of the gate's own limits.
const patience = 20 * time.Second

// Run sends every row through an engine's gate at addr, a TCP address or the path
// of a unix socket, and judges it. A row on which the engine is said to differ has
// to come out as that says, and not as the table does.
func Run(t *testing.T, w *World, engine, addr string) {
	front := addr
	if strings.HasPrefix(addr, "/") {
		front = "127.0.0.1:3128" // what else could be asked for as the gate itself
	}
	rows := Rows(front)
	if err := Check(rows); err != nil {
		t.Fatal(err)
	}
	passed := map[string]bool{}
	for _, r := range rows { // controls come first in the table
		ok := t.Run(strings.ReplaceAll(r.Name, " ", "_"), func(t *testing.T) {
			if r.Reach == "" && !passed[r.Control] {
				t.Errorf("its control %q did not pass, so this row says nothing", r.Control)
			}
			d, differs := difference(r.Name, engine)
			instead := r
			if differs {
				d.Instead(&instead)
				r.Patience = instead.Patience
			}
			o := r.play(w, addr)
			for range 2 { // it may not have been let run
				if r.Within == 0 || o.took <= r.Within || differs {
					break
				}
				o = r.play(w, addr)
			}
			err := r.verdict(o)
			switch {
			case !differs && err != nil:
				t.Error(err)
			case differs && err == nil:
				t.Errorf("does what the table says, and is said to differ: it %s", d.Does)
			case differs:
				if err := instead.verdict(o); err != nil {
					t.Errorf("differs, but not in that it %s: %v", d.Does, err)
				}
			}
		})
		passed[r.Name] = ok
	}
	t.Logf("%d rows", len(rows))
}

// An outcome is what came of a row.
type outcome struct {
	status  int
	got     string // what the client read
	err     error
	hits    []Hit
	queries []string
	took    time.Duration
}

func (o outcome) String() string {
	return fmt.Sprintf("status %d, read %.300q (%v); far servers saw %.600q; DNS saw %q", o.status, o.got, o.err, fmt.Sprint(o.hits), o.queries)
}

// play sends the row through the gate at addr.
func (r Row) play(w *World, addr string) outcome {
	w.Reset()
	begin := time.Now()
	status, got, err := r.Exchange(addr)
	took := time.Since(begin)
	o := outcome{status, got, err, w.Hits(), w.Queries(), took}
	// A server's words are known when it is done.
	for end := begin.Add(patience); r.Hidden != nil && len(o.hits) > 0 && o.hits[0].Data == "" && time.Now().Before(end); time.Sleep(time.Millisecond) {
		o.hits = w.Hits()
	}
	return o
}

// Judge sends the row through the gate at addr and returns what is wrong with
// what came of it.
func (r Row) Judge(w *World, addr string) error { return r.verdict(r.play(w, addr)) }

// verdict returns what is wrong with what came of the row.
func (r Row) verdict(o outcome) error {
	if r.Within > 0 && o.took > r.Within {
		return fmt.Errorf("took %v; %s", o.took, o)
	}
	for _, q := range o.queries {
		if r.Reach == "" && !slices.Contains(r.Lookups, q) && !(r.Ended && slices.Contains([]string{"ok.test", "alt.test", "web.test"}, q)) {
			return fmt.Errorf("%q was looked up; %s", q, o)
		}
	}
	if r.Reach == "" {
		if r.Either != "" && len(o.hits) > 0 && !slices.ContainsFunc(o.hits, func(h Hit) bool { return h.At != r.Either }) {
			return nil
		}
		switch {
		case len(o.hits) > 0:
			return fmt.Errorf("a far server was reached; %s", o)
		case r.Ended && o.status != 200:
			return fmt.Errorf("the tunnel did not open, so its content decided nothing; %s", o)
		case r.Ended && errors.Is(o.err, os.ErrDeadlineExceeded) != r.Open:
			return fmt.Errorf("left open is %v; %s", !r.Open, o)
		case !r.Ended && o.status/100 == 2:
			return fmt.Errorf("it was not refused; %s", o)
		case r.Status != 0 && o.status != r.Status:
			return fmt.Errorf("want status %d; %s", r.Status, o)
		case r.ThenStatus != 0 && o.err != nil:
			return fmt.Errorf("%w; %s", o.err, o)
		}
		return nil
	}
	if r.ThenStatus != 0 && o.err != nil {
		return fmt.Errorf("%w; %s", o.err, o)
	}
	if len(o.hits) == 0 {
		return fmt.Errorf("no far server was reached; %s", o)
	}
	for _, h := range o.hits {
		if h.At != r.Reach {
			return fmt.Errorf("%s was reached; %s", h.At, o)
		}
	}
	if !r.Mute && !strings.Contains(o.got, "MARKER at="+r.Reach) {
		return fmt.Errorf("no answer from %s; %s", r.Reach, o)
	}
	if r.Host != "" && !strings.Contains(o.got, "host="+r.Host) {
		return fmt.Errorf("the far server did not see Host: %s; %s", r.Host, o)
	}
	for _, word := range r.Hidden {
		if !strings.Contains(o.hits[0].Data, "END") || strings.Contains(o.hits[0].Data, word) {
			return fmt.Errorf("the far server has to get all but %q; %s", word, o)
		}
	}
	return nil
}

// Exchange plays the client and returns the status of the gate's first answer
// and all that was read.
func (r Row) Exchange(addr string) (status int, got string, err error) {
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		return 0, "", err
	}
	defer c.Close()
	limit := patience
	switch {
	case r.Patience > 0:
		limit = r.Patience
	case r.Reach == "" && r.Status == 0 && !r.Ended:
		limit = 2 * time.Second // silence is a refusal, too
	}
	c.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(c, r.Send); err != nil {
		return 0, "", err
	}
	br := bufio.NewReader(c)
	line, err := br.ReadString('\n')
	fmt.Sscanf(line, "HTTP/1.%d %d", new(int), &status)
	if err != nil {
		return status, line, err
	}
	if !strings.HasPrefix(strings.ToUpper(r.Send), "CONNECT ") || status != 200 {
		rest := bufio.NewReader(io.MultiReader(strings.NewReader(line), br))
		resp, err := http.ReadResponse(rest, nil)
		for err == nil && resp.StatusCode == http.StatusContinue {
			resp, err = http.ReadResponse(rest, nil)
		}
		if err == nil {
			status = resp.StatusCode
		}
		if err != nil {
			return status, line, err
		}
		body, err := io.ReadAll(resp.Body)
		var head strings.Builder
		resp.Header.Write(&head)
		got := line + head.String() + string(body)
		if err != nil || r.ThenStatus == 0 {
			return status, got, err
		}
		io.WriteString(c, r.Then)
		again, err := http.ReadResponse(rest, nil)
		if err != nil {
			return status, got, fmt.Errorf("the answer to what came next: %w", err)
		}
		if again.StatusCode != r.ThenStatus {
			return status, got, fmt.Errorf("what came next was answered %d, want %d", again.StatusCode, r.ThenStatus)
		}
		body, err = io.ReadAll(again.Body)
		return status, got + string(body), err
	}
	for {
		l, err := br.ReadString('\n')
		if err != nil {
			return status, line, err
		}
		if strings.TrimSpace(l) == "" {
			break
		}
	}
	time.Sleep(r.Inside.Wait)
	switch in := r.Inside; {
	case in.TLS:
		conf := &tls.Config{InsecureSkipVerify: true, ServerName: in.SNI}
		if in.ALPN != "" {
			conf.NextProtos = []string{in.ALPN}
		}
		t := tls.Client(&reshaped{Conn: c, in: in}, conf)
		if err := t.Handshake(); err != nil {
			return status, "", err
		}
		if in.ALPN == "" {
			io.WriteString(t, plainGet)
		}
		b, err := io.ReadAll(t)
		return status, string(b), err
	case in.Raw != "":
		io.WriteString(c, in.Raw)
	}
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := br.Read(buf)
		b.Write(buf[:n])
		if r.Inside.ServerFirst && n > 0 && r.Reach != "" {
			return status, b.String(), nil
		}
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return status, b.String(), err
		}
	}
}

// A reshaped connection sends its first record, the hello, in another form.
type reshaped struct {
	net.Conn
	in   Inside
	done bool
}

func (c *reshaped) Write(b []byte) (int, error) {
	if c.done {
		return c.Conn.Write(b)
	}
	c.done = true
	out := b
	if n := c.in.Records; n > 0 {
		out = nil
		for part := range slices.Chunk(b[5:], n) {
			out = append(out, record(string(part))...)
		}
	}
	size := len(out)
	if c.in.Trickle > 0 {
		size = len(out)/c.in.Trickle + 1
	}
	for part := range slices.Chunk(out, size) {
		if _, err := c.Conn.Write(part); err != nil {
			return 0, err
		}
		if size < len(out) {
			time.Sleep(5 * time.Millisecond)
		}
	}
	return len(b), nil
}
