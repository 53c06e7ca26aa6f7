package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
)

// Net learn is for the one run that asks for it, and not beside a secret unless that is
// confirmed.
func TestLearnIsAskedFor(t *testing.T) {
	s := newStage(t)
	for _, tc := range []struct {
		file, project string
		env           string
		args          []string
		want          string // "" is that it is printed
	}{
		{args: []string{"--net", "learn"}},
		{args: []string{"--net=learn", "--env", "A=b"}},
		{args: []string{"--net", "learn", "--env", "TOKEN"}, want: "it is given TOKEN; pass none of them, or say --learn-with-secrets"},
		{args: []string{"--net", "learn", "--env", "TOKEN", "--learn-with-secrets"}},
		{file: "net = learn\n", want: "is no setting to keep; give --net learn to the run"},
		{file: "net = learn\n", args: []string{"--net", "gated"}},
		{file: "[profile x]\nnet = learn\n", args: []string{"--profile", "x"}, want: "is no setting to keep"},
		{env: "learn", want: "net = learn (from AISB_NET)"},
		{project: "net = learn\n", want: "is not trusted"},
		{project: "net = learn\n", args: []string{"--trusted"}, want: "is no setting to keep"},
	} {
		s.write(s.config, tc.file)
		s.env["AISB_NET"] = tc.env
		if tc.env == "" {
			delete(s.env, "AISB_NET")
		}
		args := append([]string{"--print-policy"}, tc.args...)
		file := filepath.Join(s.project, config.ProjectFile)
		if err := os.RemoveAll(filepath.Dir(file)); err != nil {
			t.Fatal(err)
		}
		if tc.project != "" {
			s.write(file, tc.project)
		}
		if len(tc.args) > 0 && tc.args[0] == "--trusted" {
			args = []string{"--print-policy"}
			if code := s.do("trust", "--yes"); code != 0 {
				t.Fatalf("trust: %d %s", code, s.err.String())
			}
		}
		code := s.do(append(args, "--", "true")...)
		said, learns := s.err.String(), strings.Contains(s.out.String(), "LEARN")
		if tc.want == "" && (code != 0 || learns != (tc.file == "")) || tc.want != "" && (code == 0 || !strings.Contains(said, tc.want)) {
			t.Errorf("%+v: exit %d\n%s%s", tc, code, s.out.String(), said)
		}
	}
}

// A login, an agent's whole directory and a mount where keys are kept are secrets too.
func TestLearnBesideALogin(t *testing.T) {
	s := newStage(t)
	for _, agent := range []string{"claude", "gemini"} {
		program := filepath.Join(s.env["PATH"], agent)
		s.write(program, "#!/bin/sh\n")
		if err := os.Chmod(program, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	home := s.env["HOME"]
	login := filepath.Join(home, ".claude/.credentials.json")
	s.write(filepath.Join(home, ".gemini/settings.json"), "{}")
	s.write(filepath.Join(home, ".aws/credentials"), "key")
	s.write(filepath.Join(home, ".claude/other.json"), "{}")
	for _, file := range []string{"data/x", ".netrc", ".config/gh/hosts.yml", ".config/other/x", ".cargo/credentials.toml", "dotfiles/npmrc"} {
		s.write(filepath.Join(home, file), "x")
	}
	if err := os.Symlink("dotfiles/npmrc", filepath.Join(home, ".npmrc")); err != nil {
		t.Fatal(err)
	}
	jail := []string{"--runtime", "local", "--net", "learn"}
	for _, tc := range []struct {
		what  string
		login bool
		args  []string
		want  string // "" is that it is printed
	}{
		{what: "no login is there", args: []string{"claude"}},
		{what: "a login", login: true, args: []string{"claude"}, want: "it is given claude's login (" + login + "); pass none of them (--credentials env leaves"},
		{what: "a login that is left out", login: true, args: []string{"--credentials", "env", "claude"}},
		{what: "another agent", login: true, args: []string{"gemini"}},
		{what: "confirmed", login: true, args: []string{"--learn-with-secrets", "claude"}},
		{what: "the whole home", args: []string{"--bind-harness-home", "gemini"}, want: "it is given gemini's login (" + home + "/.gemini)"},
		{what: "the whole home and a variable", args: []string{"--env", "TOKEN", "--bind-harness-home", "gemini"}, want: "it is given TOKEN, gemini's login ("},
		{what: "a mount among keys", args: []string{"--mount", "~/.aws/credentials:/mnt/x", "--", "true"}, want: "it is given " + home + "/.aws/credentials; pass none of them, or"},
		{what: "a mount of a login", login: true, args: []string{"--mount", "~/.claude/.credentials.json:/mnt/x", "--", "true"}, want: "it is given claude's login ("},
		{what: "a mount of a home", login: true, args: []string{"--mount", "~/.claude:/mnt/x", "--", "true"}, want: "it is given claude's login ("},
		{what: "a mount beside a login", login: true, args: []string{"--mount", "~/.claude/other.json:/mnt/x", "--", "true"}},
		{what: "a file of logins", args: []string{"--mount", "~/.netrc:/mnt/x", "--", "true"}, want: "it is given " + home + "/.netrc; pass none of them, or"},
		{what: "a directory of logins", args: []string{"--mount", "~/.config/gh:/mnt/x", "--", "true"}, want: "it is given " + home + "/.config/gh; pass"},
		{what: "a file in a directory of logins", args: []string{"--mount", "~/.config/gh/hosts.yml:/mnt/x", "--", "true"}, want: "it is given " + home + "/.config/gh/hosts.yml; pass"},
		{what: "a mount that holds a login", args: []string{"--mount", "~/.cargo:/mnt/x", "--", "true"}, want: "it is given " + home + "/.cargo; pass"},
		{what: "a mount that holds what a link of a login leads to", args: []string{"--mount", "~/dotfiles:/mnt/x", "--", "true"}, want: "it is given " + home + "/dotfiles; pass"},
		{what: "settings beside logins", args: []string{"--mount", "~/.config/other:/mnt/x", "--", "true"}},
		{what: "a mount of data", login: true, args: []string{"--mount", "~/data:/mnt/x", "--", "true"}},
	} {
		if err := os.RemoveAll(login); err != nil {
			t.Fatal(err)
		}
		if tc.login {
			s.write(login, "{}")
		}
		code := s.do(append(append([]string{"--print-policy"}, jail...), tc.args...)...)
		said := s.err.String()
		if tc.want == "" && (code != 0 || !strings.Contains(s.out.String(), "LEARN")) || tc.want != "" && (code == 0 || !strings.Contains(said, tc.want)) {
			t.Errorf("%s: exit %d\n%s", tc.what, code, said)
		}
	}
	s.write(login, "{}")
	// With podman it is bound where it is asked for.
	for from, want := range map[string]bool{"host": true, "env": false} {
		code := s.do("--print-policy", "--net", "learn", "--harness-packages", "claude", "--credentials", from, "claude")
		if refused := code != 0 && strings.Contains(s.err.String(), "it is given claude's login ("+login+")"); refused != want {
			t.Errorf("podman, credentials %s: exit %d\n%s", from, code, s.err.String())
		}
	}
}
