package entrypoint

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestTryOwner(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := tryOwner(); err == nil {
		t.Error("there is no file")
	}
	if err := os.Symlink("/etc/passwd", "outside"); err != nil {
		t.Fatal(err)
	}
	if err := tryOwner(); err == nil {
		t.Error("a link is no file of ours")
	}
	if err := os.Remove("outside"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("outside", []byte("word"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tryOwner(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile("inside"); err != nil || string(text) != "word" {
		t.Errorf("%v: %q", err, text)
	}
	if os.Getuid() != 0 {
		return
	}
	if err := os.Chown("outside", 7, 7); err != nil {
		t.Fatal(err)
	}
	if err := tryOwner(); err == nil || !strings.Contains(err.Error(), "belongs to uid 7 inside, where the command is uid 0") {
		t.Error(err)
	}
}

func TestTryGate(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("it is the ready word of " + r.Host))
	}))
	defer s.Close()
	if err := tryGate(s.URL+"/", "a.invalid", "ready word of a.invalid"); err != nil {
		t.Error(err)
	}
	if err := tryGate(s.URL, "a.invalid", "other"); err == nil || !strings.Contains(err.Error(), "it says ") {
		t.Error(err)
	}
	s.Close()
	if err := tryGate(s.URL, "a.invalid", "x"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
	for _, proxy := range []string{"", "http://gate.test:80"} {
		if err := tryGate(proxy, "a.invalid", "x"); err == nil || !strings.Contains(err.Error(), "http_proxy") {
			t.Error(err)
		}
	}
}
