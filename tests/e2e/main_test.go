//go:build e2e

// Package e2e drives the built ai-sandbox against real podman, pasta and squid.
// What a test claims is judged by what the far servers and the DNS server of
// tests/e2e/internet saw, and each refusal has a positive control in the same
// test. Nothing is skipped: what is missing is a failure that says so.
//
// tests/e2e/run compiles it and runs it in the test host.
package e2e

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"

	"ai-sandbox/tests/e2e/internet"
	"ai-sandbox/tests/e2e/stage"
)

var update = flag.String("update", "", "write the golden files to `DIR` instead of comparing with them")

// w is what every test stands on; TestMain makes it.
var w struct {
	bin   string
	home  string
	caPEM string
	net   *internet.Internet
	env   []string
	npm   string
}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := setup(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func setup(m *testing.M) (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	bin := filepath.Dir(self)
	for _, name := range []string{"ai-sandbox", "ai-sandbox-testhook", "probe"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return 1, fmt.Errorf("%w; start this with tests/e2e/run", err)
		}
	}
	s, err := stage.Set(bin)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	w.bin, w.home, w.caPEM, w.net, w.env, w.npm = s.Bin, s.Home, s.CAPEM, s.Net, s.Env, s.NPM
	start := time.Now()
	if err := s.Build(); err != nil {
		return 1, err
	}
	fmt.Fprintf(os.Stderr, "e2e: the images were ready after %.1f s\n", time.Since(start).Seconds())
	code = m.Run()
	return code, noStrays()
}

// noStrays is the verdict on the whole run: nobody but the tests themselves ever
// reached the servers that no list names.
func noStrays() error {
	var errs []error
	for _, h := range w.net.Hits("") {
		for _, ip := range []string{internet.Refused, internet.Private, internet.Metadata, "127.0.0.1:8888", internet.Refused6} {
			if strings.Contains(h.At, ip) && h.Net == "http" && !strings.Contains(h.Path, "control") {
				errs = append(errs, fmt.Errorf("a far server that nobody may reach was reached: %+v", h))
			}
		}
	}
	return errors.Join(errs...)
}

var notPlain = regexp.MustCompile(`[^a-z0-9]+`)

// newBox makes a project that holds the probe.
func newBox(t *testing.T) *drive.Box {
	t.Helper()
	name := strings.Trim(notPlain.ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-"), "-")
	if len(name) > 40 {
		name = name[:40]
	}
	parent := filepath.Join(w.home, "e2e", "projects")
	if err := os.MkdirAll(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(parent, name+"-")
	if err != nil {
		t.Fatal(err)
	}
	token := "t" + filepath.Base(dir)[strings.LastIndexByte(filepath.Base(dir), '-')+1:] + "x"
	b := &drive.Box{T: t, Dir: dir, Bin: filepath.Join(w.bin, "ai-sandbox"), Base: w.env, Token: token}
	probe, err := os.ReadFile(filepath.Join(w.bin, "probe"))
	if err != nil {
		t.Fatal(err)
	}
	if err := drive.WriteProgram(filepath.Join(dir, "probe"), probe); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(t, dir) })
	return b
}

// control asks a far server from outside, as a sandbox would have without any
// control in its way: the positive control of a refusal.
func control(t *testing.T, url string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	sep := "/"
	if strings.Count(url, "/") > 2 {
		sep = "?"
	}
	resp, err := c.Get(url + sep + "control")
	if err != nil {
		t.Fatalf("the positive control: %v", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(b), w.net.Marker) {
		t.Fatalf("the positive control: %s answers %q, %v", url, b, err)
	}
}
