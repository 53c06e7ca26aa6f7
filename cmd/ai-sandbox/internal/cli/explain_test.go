package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/policy"
	"ai-sandbox/tests/schema"
)

// Whether, and by which line: each source of a setting is named.
func TestExplainHost(t *testing.T) {
	s := newStage(t)
	s.write(s.config, "# mine\nallow = file.example.com\nallow_private = 10.0.0.0/8:5432\n[profile work]\nallow = .work.example.com\n")
	s.env["AISB_ALLOW"] = "env.example.com"
	for _, tc := range []struct {
		args string
		want []string // in this order
		not  string
	}{
		{"file.example.com:443", []string{"file.example.com:443: let through\n", "by allow = file.example.com (" + s.config + ":2)", "looks the name up", "only TLS passes"}, "refused\n"},
		{"file.example.com", []string{"file.example.com:80: let through\n", "file.example.com:443: let through\n"}, "refused\n"},
		{"env.example.com:443", []string{"by allow = env.example.com (AISB_ALLOW)"}, "refused\n"},
		{"--allow *.example.org www.EXAMPLE.org:443", []string{"www.example.org:443: let through", `by allow = "*.example.org" (--allow)`}, "refused\n"},
		{"--profile work a.work.example.com:80", []string{"let through", "by allow = .work.example.com (profile work (" + s.config + ":5))"}, "refused\n"},
		{"a.work.example.com:80", []string{"a.work.example.com:80: refused\n", "no entry of the allowlist has this host at this port", "to open it: --allow a.work.example.com\n"}, "let through\n"},
		{"file.example.com:22", []string{"refused\n", "no entry of the allowlist has this port", "it is let through at port 80\n", "it is let through at port 443\n", "to open it: --allow file.example.com:22\n"}, ""},
		{"10.1.2.3", []string{"10.1.2.3:80: refused\n", "10.1.2.3:443: refused\n", "10.1.2.3:5432: let through\n", "by allow_private = 10.0.0.0/8:5432 (" + s.config + ":3)"}, ""},
		{"--allow 10.0.0.1 10.0.0.1:443", []string{"refused\n", "this address is private", "in spite of allow = 10.0.0.1 (--allow)", "--allow-private 10.0.0.1\n"}, "let through\n"},
		{"169.254.169.254:80", []string{"refused\n", "it is an address"}, "let through\n"},
		{"localhost:8080", []string{"localhost:8080: refused\n", "the sandbox's own loopback"}, "let through\n"},
		{"--net none file.example.com:443", []string{"refused\n", "net = none (--net)"}, "let through\n"},
		{"--runtime local --net host x.example:1", []string{"x.example:1: let through\n", "net = host (--net): nothing is shut"}, "refused\n"},
		{"--allow= file.example.com:443", nil, ""},
		{"--gate work gate.example.com:443", nil, ""},
	} {
		code := s.do(append([]string{"explain"}, strings.Fields(tc.args)...)...)
		if tc.want == nil {
			continue
		}
		out := s.out.String()
		if code != 0 {
			t.Errorf("%s: exit %d: %s", tc.args, code, s.err.String())
		}
		rest := out
		for _, w := range tc.want {
			_, after, ok := strings.Cut(rest, w)
			if !ok {
				t.Errorf("%s: lacks %q:\n%s", tc.args, w, out)
			}
			rest = after
		}
		for line := range strings.Lines(out) {
			if !strings.Contains(line, s.config) && len(strings.TrimRight(line, "\n")) > helpWidth {
				t.Errorf("%s: more than %d columns: %s", tc.args, helpWidth, line)
			}
		}
		if tc.not != "" && strings.Contains(out, ": "+tc.not) {
			t.Errorf("%s: says %q:\n%s", tc.args, tc.not, out)
		}
	}
	// A named gate has a list of its own.
	s.env["AISB_ALLOW"] = ""
	s.write(s.config, "")
	if code := s.do("explain", "--gate", "work", "gate.example.com:443"); code != 0 || !strings.Contains(s.out.String(), "by gate.example.com (the list of gate work)") {
		t.Errorf("exit %d: %s%s", code, s.out.String(), s.err.String())
	}
	for args, want := range map[string]string{
		"":                              "explain needs",
		"a b c":                         "takes no argument",
		"a.example.com notone":          "notone is not a harness",
		"https://a.example.com/":        "is a URL, and the gate is asked for a host",
		"a.example.com:0":               "has 0 for a port",
		"--net wat a.example.com":       "use gated or unix or none or host",
		"--allow b:x a.example.com":     "port number",
		"--print-policy a.example.com":  "is not a flag of explain",
		"a.example.com -- echo explain": "",
	} {
		code := s.do(append([]string{"explain"}, strings.Fields(args)...)...)
		if code == 0 || !strings.Contains(s.err.String(), want) {
			t.Errorf("explain %s: exit %d: %s", args, code, s.err.String())
		}
	}
}

func TestExplainPath(t *testing.T) {
	s := newStage(t)
	base := strings.TrimSuffix(s.project, "/home/dev/shop")
	inside, _ := policy.Workdir(s.project)
	if err := os.Symlink("/etc/passwd", filepath.Join(s.project, "link")); err != nil {
		t.Fatal(err)
	}
	data := base + "/srv/data"
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string
		want []string
	}{
		{"--mount " + data + ":/mnt/data " + data + "/x", []string{"of this machine: read-only, inside at /mnt/data/x", "by the mount ro bind /mnt/data", " (--mount)\n"}},
		{"--mount " + data + ":/mnt/data:rw --mount " + data + ":/mnt/again /mnt/again", []string{"/mnt/again, inside: read-only\n", " (--mount)\n"}},
		{".", []string{s.project + ", of this machine: read-write, ", "by the mount rw bind " + inside}},
		{"./a/b", []string{s.project + "/a/b, of this machine: read-write, "}},
		{"--fs ro ./a/b", []string{s.project + "/a/b, of this machine: read-only, ", "fs = ro (--fs)"}},
		{s.project + "/a", []string{s.project + "/a, of this machine: read-write, "}},
		{"~/shop/x", []string{s.project + "/x, of this machine: read-write, "}},
		{"~/.ssh/id", []string{base + "/home/dev/.ssh/id, of this machine: not visible\n", "no mount leads to it"}},
		{"..", []string{base + "/home/dev, of this machine: not visible\n", "of what is below it, this is: rw bind " + inside}},
		{"./link", []string{s.project + "/link is /etc/passwd on this machine\n", "/etc/passwd, of this machine: not visible\n", s.project + "/link, inside: "}},
		{"/usr/bin/env", []string{"/usr/bin/env, inside: read-only\n", "the image's own file system"}},
		{"/tmp", []string{"/tmp, inside: read-write\n", "rw tmpfs /tmp"}},
		{"/run", []string{"/run, inside: read-only\n", "below it: ro bind /run/aisb"}},
		{"/proc/self/status", []string{"/proc/self/status, inside: as the kernel lets"}},
	} {
		code := s.do(append([]string{"explain"}, strings.Fields(tc.args)...)...)
		if code != 0 {
			t.Errorf("%s: exit %d: %s", tc.args, code, s.err.String())
		}
		for _, w := range tc.want {
			if !strings.Contains(s.out.String(), w) {
				t.Errorf("%s: lacks %q:\n%s", tc.args, w, s.out.String())
			}
		}
	}
}

// As diff(1) does: 0, 1 and 2.
func TestPolicyDiff(t *testing.T) {
	doc, err := filepath.Abs("../../../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	dir := t.TempDir()
	file := func(name string, args ...string) string {
		t.Helper()
		if code := s.do(append([]string{"--print-policy=json"}, args...)...); code != 0 {
			t.Fatalf("exit %d: %s", code, s.err.String())
		}
		path := filepath.Join(dir, name)
		s.write(path, s.out.String())
		return path
	}
	a := file("a.json", "--allow", "a.example.com", "pi")
	b := file("b.json", "--allow", "b.example.com", "--fs", "ro", "pi")
	if code := s.do("policy", "diff", a, a); code != 0 || s.out.String() != "" {
		t.Errorf("the same: exit %d: %s%s", code, s.out.String(), s.err.String())
	}
	if code := s.do("policy", "diff", a, b); code != 1 || s.err.String() != "" {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
	inside, _ := policy.Workdir(s.project)
	want := "B allows more\n  allow b.example.com (this host, ports 80 and 443)\nB allows less\n  " +
		s.project + " at " + inside + ": read-only, not read-write\n  no allow a.example.com (this host, ports 80 and 443)\n" +
		"otherwise\n  setting allow: a.example.com -> b.example.com\n  setting fs: not set -> ro\n"
	if s.out.String() != want {
		t.Errorf("got\n%swant\n%s", s.out.String(), want)
	}
	if code := s.do("policy", "diff", "--json", a, b); code != 1 {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
	if err := schema.Documented(doc, "difference", s.out.Bytes()); err != nil {
		t.Error(err)
	}
	var d policy.Difference
	if err := json.Unmarshal(s.out.Bytes(), &d); err != nil || len(d.More) != 1 || len(d.Less) != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	bad := filepath.Join(dir, "bad\x1b[2J")
	s.write(bad, `{"version":9}`)
	for _, tc := range [][3]string{
		{a, bad, `bad\x1b[2J": the policy has version 9`},
		{a, filepath.Join(dir, "none"), "no such file"},
		{a, dir, "is a directory"},
		{"/dev/zero", a, "longer than 8 MiB"},
		{"-", "-", "can't both be standard input"},
	} {
		if code := s.do("policy", "diff", tc[0], tc[1]); code != 2 || !strings.Contains(s.err.String(), tc[2]) || s.out.String() != "" {
			t.Errorf("%q: exit %d: %s", tc, code, s.err.String())
		}
	}
	for _, args := range [][]string{{"policy"}, {"policy", "diff", a}, {"policy", "wat"}, {"policy", "diff", "--allow", "x", a, b}} {
		if code := s.do(args...); code != 2 {
			t.Errorf("%q: exit %d", args, code)
		}
	}
}

// The document's examples of hosts are what is printed.
func TestExplainDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	checked := 0
	for _, block := range strings.Split(string(doc), "```\n") {
		for _, example := range strings.Split("\n"+block, "\n$ ai-sandbox ")[1:] {
			line, want, _ := strings.Cut(example, "\n")
			args := strings.Fields(line)
			if what := args[len(args)-1]; args[0] != "explain" || isPath(what) {
				continue
			}
			want = strings.TrimRight(want, "\n")
			if code := s.do(args...); code != 0 || strings.TrimRight(s.out.String(), "\n") != want {
				t.Errorf("%s: exit %d\n%swant\n%s", line, code, s.out.String(), want)
			}
			checked++
		}
	}
	if checked < 2 {
		t.Errorf("only %d examples were found", checked)
	}
}

// Each option of a run that is set stands in the printout by its own name.
func TestSettingsArePrinted(t *testing.T) {
	for _, o := range config.Options {
		s := config.Settings{"base": {{Key: "base", Value: "x", Origin: config.BuiltIn}}}
		s[o.Key] = []config.Item{{Key: o.Key, Value: "x y", Origin: "--" + o.Flag()}}
		p := policy.Policy{Settings: given(s)}
		switch want := "\n  " + o.Key + " = \"x y\"\n"; {
		case o.Use&config.UseConfig == 0:
			if len(p.Settings) != 0 {
				t.Errorf("%s is no setting of a run, and printed", o.Key)
			}
		case !strings.Contains(p.Text(), want) || len(p.Settings) > 1:
			t.Errorf("%s: %q", o.Key, p.Settings)
		}
	}
	st := newStage(t)
	if code := st.do("--print-policy", "--fs", "ro", "--no-agents", "--allow", "a.example.com", "--allow", "b.example.com", "pi"); code != 0 ||
		!strings.HasSuffix(st.out.String(), "\nsettings; every other one is as it is built in\n  allow = a.example.com\n  allow = b.example.com\n  fs = ro\n  agents = false\n") {
		t.Errorf("exit %d: %s", code, st.out.String())
	}
}
