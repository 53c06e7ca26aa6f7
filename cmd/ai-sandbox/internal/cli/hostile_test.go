package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/tests/hostile"
)

// Whatever stands on the command line, in a variable, a file or a path, nothing
// that ai-sandbox prints is anything to a terminal but text: printouts, errors,
// notes, listings and answers, on either runtime.
func TestHostileStrings(t *testing.T) {
	s := newStage(t)
	printed := 0
	do := func(what string, args ...string) {
		t.Helper()
		s.do(args...)
		for _, text := range []string{s.out.String(), s.err.String()} {
			if text != "" {
				printed++
			}
			if err := hostile.Printed(text); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	verbs := [][]string{{}, {"config"}, {"config", "--json"}, {"explain"}}
	for i, x := range hostile.Strings {
		if strings.ContainsRune(x, 0) {
			continue // no argument or variable can hold it
		}
		name := func(flag string) string { return flag + "=" + short(x) }
		for _, o := range config.Options {
			if i%6 != 0 && o.Key != "allow" && o.Key != "base" {
				continue // each option with some of them, and some options with each
			}
			if !o.In(config.InFlag) || o.Values != nil && o.Bare != "" || o.Kind == config.Bool {
				continue
			}
			flag := "--" + o.Flag() + "=" + x
			do(name(flag[:len(flag)-len(x)-1]), flag, "--print-policy", "--", "true")
			if o.In(config.InEnv) {
				s.env[o.Env()] = x
				do(o.Env(), "--print-policy=json", "--", "true")
				do(o.Env(), "config")
				delete(s.env, o.Env())
			}
		}
		do("env value", "--env", "N="+x, "--print-policy", "--", "true")
		do("env value", "--env", "N="+x, "--print-policy=json", "--", "true")
		do("env name", "--env", x+"=1", "--", "true")
		for _, runtime := range []string{"podman", "local"} {
			for _, print := range []string{"--print-policy", "--print-policy=json", "--dry-run"} {
				do("argument", "--runtime", runtime, print, "--", "echo", x)
			}
		}
		do("run", "--", x)
		do("word", x)
		do("flag", "-"+x, "pi")
		do("flag", "--"+x)
		do("verb's argument", "help", x)
		do("verb's argument", "exec", x, "--", "true")
		do("verb's argument", "down", x)
		do("verb's argument", "gate", "up", x)
		do("explain", "explain", x)
		do("explain", "explain", "/"+x)
		do("explain", "explain", "./"+x, "pi")
		do("explain", "explain", "a.example.com", x)
		do("diff", "policy", "diff", x, "/"+x)
		bad := filepath.Join(t.TempDir(), "policy.json")
		s.write(bad, `{"version":1,"`+x+`":1}`)
		do("diff", "policy", "diff", bad, bad)
		for _, key := range []string{"allow", "env", "cache_dir", x} {
			s.write(s.config, key+" = "+x+"\n[profile work]\n"+key+" = "+x+"\n["+x+"]\n")
			for _, v := range verbs {
				do("file", append(v, "--print-policy")...)
			}
			do("file", "config")
			do("file", "--profile", "work", "--print-policy", "--", "true")
		}
		s.write(s.config, "")
		s.write(filepath.Join(s.project, ".ai-sandbox/config"), "allow = "+x+"\nfs = "+x+"\n"+x+"\n")
		do("project's file", "--print-policy", "--", "true")
		do("project's file", "trust")
		do("project's file", "config")
		if err := os.RemoveAll(filepath.Join(s.project, ".ai-sandbox")); err != nil {
			t.Fatal(err)
		}
	}
	// A project that is called so, with a file in it that is, too.
	base := s.project
	for _, x := range hostile.Strings {
		x = strings.ReplaceAll(x, "/", "_")
		if strings.ContainsRune(x, 0) || len(x) > 200 || x == ".." {
			continue
		}
		dir := filepath.Join(filepath.Dir(base), "in-"+x)
		s.write(filepath.Join(dir, ".ai-sandbox", "config"), "net = none\nallow = a.example.com\nbogus\n")
		if err := os.Symlink("/etc/"+x, filepath.Join(dir, x)); err != nil && x != "-" && x != "--" {
			t.Fatal(err)
		}
		t.Chdir(dir)
		for _, args := range [][]string{
			{"--print-policy", "--", "true"}, {"--print-policy=json", "--", "true"}, {"--dry-run", "--", "true"}, {"--runtime", "local", "--print-policy", "--", "true"}, {"--", "true"},
			{"explain", "."}, {"explain", "./" + x}, {"config"}, {"config", "--json"}, {"trust"}, {"doctor"},
			{"--ignore-project-config", "--print-policy", "--", "true"}, {"--ignore-project-config", "--print-policy=json", "--", "true"}, {"--ignore-project-config", "explain", "."},
		} {
			do("project "+short(x), args...)
		}
	}
	if printed < 2000 {
		t.Errorf("only %d texts were looked at", printed)
	}
}

func short(s string) string { return quote(s[:min(len(s), 40)]) }
