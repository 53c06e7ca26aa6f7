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

// Run sends every row through the gate at addr and judges it.
func Run(t *testing.T, w *World, addr string) {
	rows := Rows(addr)
	if err := Check(rows); err != nil {
		t.Fatal(err)
	}
	passed := map[string]bool{}
	for _, r := range rows { // controls come first in the table
		ok := t.Run(strings.ReplaceAll(r.Name, " ", "_"), func(t *testing.T) {
			if r.Reach == "" && !passed[r.Control] {
				t.Errorf("its control %q did not pass, so this row says nothing", r.Control)
			}
			if err := r.Judge(w, addr); err != nil {
				t.Error(err)
			}
		})
		passed[r.Name] = ok
	}
	t.Logf("%d rows", len(rows))
}

// Judge sends the row through the gate at addr and returns what is wrong with
// what came of it.
func (r Row) Judge(w *World, addr string) error {
	w.Reset()
	status, got, err := r.Exchange(addr)
	hits := w.Hits()
	saw := fmt.Sprintf("status %d, read %.200q (%v); far servers saw %+v; DNS saw %q", status, got, err, hits, w.Queries())
	for _, q := range w.Queries() {
		if r.Reach == "" && !slices.Contains(r.Lookups, q) && !(r.Ended && slices.Contains([]string{"ok.test", "alt.test"}, q)) {
			return fmt.Errorf("%q was looked up; %s", q, saw)
		}
	}
	if r.Reach == "" {
		if r.Either != "" && !slices.ContainsFunc(hits, func(h Hit) bool { return h.At != r.Either }) {
			return nil
		}
		switch {
		case len(hits) > 0:
			return fmt.Errorf("a far server was reached; %s", saw)
		case r.Ended && status != 200:
			return fmt.Errorf("the tunnel did not open, so its content decided nothing; %s", saw)
		case r.Ended && errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("the tunnel was left open; %s", saw)
		case !r.Ended && status/100 == 2:
			return fmt.Errorf("it was not refused; %s", saw)
		case r.Status != 0 && status != r.Status:
			return fmt.Errorf("want status %d; %s", r.Status, saw)
		}
		return nil
	}
	if len(hits) == 0 {
		return fmt.Errorf("no far server was reached; %s", saw)
	}
	for _, h := range hits {
		if h.At != r.Reach {
			return fmt.Errorf("%s was reached; %s", h.At, saw)
		}
	}
	if r.Name != "get http on 443" && !strings.Contains(got, "MARKER at="+r.Reach) {
		return fmt.Errorf("no answer from %s; %s", r.Reach, saw)
	}
	if r.Host != "" && !strings.Contains(got, "host="+r.Host) {
		return fmt.Errorf("the far server did not see Host: %s; %s", r.Host, saw)
	}
	return nil
}

// Exchange plays the client and returns the status of the gate's first answer
// and all that was read.
func (r Row) Exchange(addr string) (status int, got string, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, "", err
	}
	defer c.Close()
	limit := patience
	if r.Reach == "" && r.Status == 0 && !r.Ended {
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
	if !strings.HasPrefix(r.Send, "CONNECT ") || status != 200 {
		resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(line), br)), nil)
		if err != nil {
			return status, line, err
		}
		body, err := io.ReadAll(resp.Body)
		var head strings.Builder
		resp.Header.Write(&head)
		return status, line + head.String() + string(body), err
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
		t := tls.Client(c, conf)
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
