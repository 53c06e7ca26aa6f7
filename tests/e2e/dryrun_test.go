//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

// What --dry-run prints of the containers is what is asked of podman, to the last
// field: a recorder between ai-sandbox and the service has seen it.
func TestDryRunIsExact(t *testing.T) {
	t.Parallel()
	newBox(t).OK("--ephemeral-home", "--", "true") // the service is up, and the images are recorded
	for name, flags := range map[string][]string{
		"gated": {"--fs", "ro"},
		"unix":  {"--net", "unix", "--gate-engine", "builtin", "--ephemeral-home"},
		"none":  {"--net", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			rec := record(t)
			b.Env = append(b.Env, "XDG_RUNTIME_DIR="+rec.dir)
			// No other test's container is made beside these: podman may have to be asked twice then.
			const lock = "ai-sandbox/create.lock"
			if err := errors.Join(os.Mkdir(filepath.Join(rec.dir, "ai-sandbox"), 0o700), os.Link(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), lock), filepath.Join(rec.dir, lock))); err != nil {
				t.Fatal(err)
			}
			args := append(append([]string{}, flags...), "--allow", b.Host("ok.test"), "--", "sh", "-c", "true")
			want := map[string]any{} // by the container's name
			for _, section := range strings.Split(b.OK(append([]string{"--dry-run"}, args...)...).Out, "\n--- ")[1:] {
				title, text, _ := strings.Cut(section, " ---\n")
				if strings.HasPrefix(title, "podman container of") {
					var spec map[string]any
					if err := json.Unmarshal([]byte(text), &spec); err != nil {
						t.Fatalf("%s: %v", title, err)
					}
					name, _ := spec["name"].(string)
					want[name] = spec
				}
			}
			b.OK(args...)
			made := rec.created(t)
			if len(made) != len(want) || len(made) == 0 {
				t.Fatalf("%d containers were made, and %d printed", len(made), len(want))
			}
			for _, spec := range made {
				real, _ := spec["name"].(string)
				printed := "aisb-<session>"
				id := strings.TrimPrefix(real, "aisb-")
				if strings.HasPrefix(real, "aisb-gate-") {
					printed, id = "aisb-gate-<session>", strings.TrimPrefix(real, "aisb-gate-")
				}
				got := replaced(spec, id, "<session>")
				if !reflect.DeepEqual(got, want[printed]) {
					t.Errorf("%s: made as\n%v\nprinted as\n%v", printed, got, want[printed])
				}
			}
		})
	}
}

// replaced is a JSON value with a string in the place of another.
func replaced(v any, old, with string) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, old, with)
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, replaced(e, old, with))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[strings.ReplaceAll(k, old, with)] = replaced(e, old, with)
		}
		return out
	}
	return v
}

// A recorder is a podman socket that passes everything on, and keeps what clients
// send.
type recorder struct {
	dir string // to be XDG_RUNTIME_DIR

	mu   sync.Mutex
	sent []*bytes.Buffer // a connection each
	open sync.WaitGroup
}

func record(t *testing.T) *recorder {
	t.Helper()
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	service := filepath.Join(runtime, "podman", "podman.sock")
	if _, err := os.Stat(service); errors.Is(err, fs.ErrNotExist) {
		service = filepath.Join(runtime, "ai-sandbox", "podman.sock")
	}
	dir, err := os.MkdirTemp(runtime, "rec-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(t, dir) })
	if err := os.Mkdir(filepath.Join(dir, "podman"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "podman", "podman.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &recorder{dir: dir}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.open.Add(1)
			go r.pass(c, service)
		}
	}()
	return r
}

func (r *recorder) pass(c net.Conn, service string) {
	defer r.open.Done()
	defer c.Close()
	s, err := net.Dial("unix", service)
	if err != nil {
		return // the client's error tells
	}
	defer s.Close()
	kept := &bytes.Buffer{}
	r.mu.Lock()
	r.sent = append(r.sent, kept)
	r.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(c, s) // either end may go first
		_ = c.(*net.UnixConn).CloseWrite()
	}()
	_, _ = io.Copy(io.MultiWriter(s, kept), c)
	_ = s.(*net.UnixConn).CloseWrite()
	<-done
}

// created are the specifications of the containers that were asked for.
func (r *recorder) created(t *testing.T) []map[string]any {
	t.Helper()
	r.open.Wait()
	var out []map[string]any
	for _, kept := range r.sent {
		in := bufio.NewReader(bytes.NewReader(kept.Bytes()))
		for {
			req, err := http.ReadRequest(in)
			if err != nil {
				break // the end, or an attached stream
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				break
			}
			if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/libpod/containers/create") {
				continue
			}
			var spec map[string]any
			if err := json.Unmarshal(body, &spec); err != nil {
				t.Fatal(err)
			}
			out = append(out, spec)
		}
	}
	slices.SortFunc(out, func(a, b map[string]any) int {
		x, _ := a["name"].(string)
		y, _ := b["name"].(string)
		return strings.Compare(x, y)
	})
	return out
}
