package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/policy"
)

// A run gets the proxy and what that is shown, and nothing that is said has any of it.
func TestUpstream(t *testing.T) {
	s := newStage(t)
	const password = "Upstr3amW0rd"
	file := filepath.Join(s.env["HOME"], "auth")
	s.write(file, "user:"+password+"\n")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	s.write(s.config, "upstream_proxy = http://proxy.example.com:3128\nupstream_auth_file = ~/auth\n")
	begin := func(flags ...config.Item) int {
		s.ran = nil
		a := newApp(context.Background(), nil, s.env, Streams{Out: &s.out, Err: &s.err}, s.engine)
		a.cwd = s.project
		set, err := a.prepare(flags, forLook)
		if err == nil {
			err = a.start(Invocation{Args: []string{"true"}}, set, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		return 0
	}
	want := policy.Upstream{Host: "proxy.example.com", Port: 3128, Credentials: true}
	if code := begin(config.Item{Key: "allow", Value: "api.example.com", Origin: "--allow"}); s.ran == nil || s.ran.Policy.Net.Upstream == nil || *s.ran.Policy.Net.Upstream != want || s.ran.UpstreamAuth.Reveal() != "user:"+password {
		t.Fatalf("%d: %+v: %s", code, s.ran, s.err.String())
	}
	for _, args := range [][]string{
		{"--print-policy", "--", "echo", password}, {"--print-policy=json", "--", "echo", password}, {"config"}, {"explain", "api.example.com", "--allow", "api.example.com"},
		{"--net", "odd-" + password, "--", "true"}, {"--no-such-" + password}, {"--print-policy", "--upstream-auth-file", file, "--upstream-proxy", "http://a.test:1", "--base-ttl-days", "x" + password, "--", "true"},
	} {
		s.do(args...)
		if text := s.out.String() + s.err.String(); strings.Contains(text, password) || text == "" {
			t.Errorf("%q: %s", args, text)
		}
	}
	if s.do("explain", "--allow", "api.example.com", "api.example.com:443"); !strings.Contains(s.out.String(), "let through") || !strings.Contains(s.out.String(), "it goes to the proxy http://proxy.example.com:3128") || strings.Contains(s.out.String(), "looks the name up, and refuses") {
		t.Error(s.out.String())
	}
	if s.do("explain", "--allow", "proxy.example.com:3128", "proxy.example.com:3128"); !strings.Contains(s.out.String(), "refused") || !strings.Contains(s.out.String(), "the gate alone uses") {
		t.Error(s.out.String())
	}
	if begin(config.Item{Key: "net", Value: "none", Origin: "--net"}); s.ran.Policy.Net.Upstream != nil {
		t.Error("without a gate there is a proxy")
	}

	// The doctor asks it.
	for _, c := range []struct {
		answer, err error
		given       config.Item // in place of the setting
		says, fix   string
	}{
		{says: "ok   upstream proxy     http://proxy.example.com:3128 answers"},
		{answer: errors.New("it is away"), says: "-    upstream proxy     http://proxy.example.com:3128: it is away", fix: "ai-sandbox doctor --upstream-proxy "},
		{err: errors.New("no such name"), says: "FAIL upstream proxy     http://proxy.example.com:3128: no such name", fix: "ai-sandbox doctor --upstream-proxy "},
		{given: config.Item{Key: "upstream_proxy", Value: "http://a.test", Origin: "--upstream-proxy"}, says: "FAIL upstream proxy     upstream_proxy is no host with a port", fix: "ai-sandbox config\n"},
		{given: config.Item{Key: "upstream_auth_file", Value: "/nowhere", Origin: "--upstream-auth-file"}, says: "FAIL upstream proxy     upstream_auth_file /nowhere does not exist", fix: "ls -l /nowhere"},
	} {
		s.engine.AskUpstream = func(_ context.Context, m Machine, u policy.Upstream) (error, error) {
			if u != want || m.UpstreamAuth.Reveal() != "user:"+password {
				t.Errorf("%+v is asked", u)
			}
			return c.answer, c.err
		}
		a := newApp(context.Background(), nil, s.env, Streams{Out: &s.out, Err: &s.err}, s.engine)
		a.cwd = s.project
		set, err := a.prepare(nil, forLook)
		if err != nil {
			t.Fatal(err)
		}
		if c.given.Key != "" {
			set.settings[c.given.Key] = []config.Item{c.given}
		}
		got := doctorText(a.checkUpstream(set.settings, set.Facts), 0)
		if !strings.Contains(got, c.says) || strings.Contains(got, "fix:") != (c.fix != "") || c.fix != "" && !strings.Contains(got, "  fix:             "+c.fix) {
			t.Errorf("want %q and the fix %q: %s", c.says, c.fix, got)
		}
	}

	// A named gate has its own.
	if begin(config.Item{Key: "gate", Value: "work", Origin: "user"}); s.ran.Policy.Net.Upstream != nil {
		t.Errorf("a named gate without a proxy has one: %+v", s.ran.Policy.Net)
	}
	for _, flag := range []string{"--upstream-proxy=http://a.test:1", "--upstream-auth-file=" + file} {
		if code := s.do("--print-policy", "--gate", "work", flag, "--", "true"); code != 125 || !strings.Contains(s.err.String(), "the proxy of gate work was fixed when it was made") {
			t.Errorf("%d: %s", code, s.err.String())
		}
	}
	for _, c := range []struct{ config, project, says string }{
		{"upstream_auth_file = ~/auth\n", "", "upstream_auth_file has no use without upstream_proxy; name that, or drop it (from " + s.config + ":1)"},
		{"upstream_proxy = http://a.test\n", "", "upstream_proxy is no host with a port; write http://HOST:PORT (from " + s.config + ":1)"},
		{"upstream_proxy = http://me:" + password + "@a.test:1\nupstream_auth_file = ~/auth\n", "", "upstream_proxy has a user in it"},
		{"upstream_proxy = http://a.test:1\nupstream_auth_file = ~/none\n", "", "does not exist"},
		{"upstream_proxy = http://a.test:1\nupstream_auth_file = " + s.project + "/auth\n", "", "upstream_auth_file leads into the project"},
		{"", "upstream_proxy = http://a.test:1\n", "upstream_proxy"},
		{"", "upstream_auth_file = /x\n", "upstream_auth_file"},
	} {
		s.write(s.config, c.config)
		s.write(filepath.Join(s.project, config.ProjectFile), c.project)
		if code := s.do("--print-policy", "--", "true"); code != 125 || !strings.Contains(s.err.String(), c.says) || strings.Contains(s.err.String(), password) {
			t.Errorf("%q %q: %d: %s, want %q", c.config, c.project, code, s.err.String(), c.says)
		}
	}
}
