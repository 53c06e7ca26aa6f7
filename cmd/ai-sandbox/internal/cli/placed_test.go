package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// What is wrong with a setting is told with where it stands, and names no flag that
// nobody gave.
func TestErrorsNameFileAndLine(t *testing.T) {
	s := newStage(t)
	s.write(filepath.Join(s.env["HOME"], "secrets"), "B=1\nHOME=/x\n")
	for _, tc := range []struct{ file, at, want string }{
		{"\nenv = FOO_UNSET", "2", "env FOO_UNSET is unset or empty here; "},
		{"env = A=1\nenv = 1A=x", "2", "env 1A is not a variable's name; "},
		{"env = HOME=x", "1", "env HOME is set by ai-sandbox itself; "},
		{"env = A=", "1", "env A has an empty value; "},
		{"env = TERM\nenv = SHORT", "2", "env SHORT has a value shorter than 8 bytes, "},
		{"workdir = rel", "1", "workdir rel is not absolute; "},
		{"workdir = /usr/x", "1", "workdir /usr/x would hide /usr of the sandbox; "},
		{"workdir = /x\nno_cwd = true", "1 2", "there is no project to be at workdir /x with no_cwd; "},
		{"unprotect = .envrc\nunprotect = foo", "2", "unprotect foo: it is not protected; "},
		{"unprotect = .envrc\nno_cwd = true", "1 2", "unprotect is about the project"},
		{"publish = 8000\n\nnet = none", "1 3", "with net none nothing is published; "},
		{"publish = 9000\npublish = 8000:3000\npublish = 127.0.0.1:8000:3001", "2 3", "publish 127.0.0.1:8000:3001 has a host port that is published already; "},
		{"publish = 80", "1", "publish 127.0.0.1:80:80 has a port inside at which only root can listen; "},
		{"net = host", "1", "podman's runtime has no net host; "},
		{"net = gated\nruntime = local", "1 2", "the local runtime's gated network is net unix; "},
		{"gate = x", "1", "gate x: no such gate"},
		{"gate = work\nnet = none", "1 2", "a gate has no use with net none; "},
		{"agents_dir = /nonexist", "1", "agents_dir /nonexist does not exist; "},
		{"agents_dest = rel", "1", "agents_dest rel is not absolute; "},
		{"agents_dest = /usr/x", "1", "agents_dest /usr/x would hide /usr of the sandbox; "},
		{"env_file = /nonexist", "1", "env_file /nonexist does not exist"},
		{"env = B=2\nenv_file = ~/secrets", "1 2", "env B is in an env_file and named by env too; "},
		{"env = A=1\nenv_file = ~/secrets", "2", "env HOME is set by ai-sandbox itself; "},
		{"ca_file = /nonexist", "1", "ca_file /nonexist does not exist; "},
		{"node_version = x", "1", `node version "x" is not a release's number; `},
		{"base = ---", "1", `base image "---": it names no registry; `},
		{"base = ---\nnode_version = x", "1", `base image "---": it names no registry; `},
		{"bind_harness_home = true", "1", "bind_harness_home is for the local runtime; "},
		{"insecure_keep_root = true\nruntime = local", "1 2", "insecure_keep_root is for podman's runtime only: "},
		{"base_ttl_days = x", "1", `base_ttl_days is "x"`},
		{"memory = x", "1", "memory x "},
		{"mount = /nonexist", "1", "mount /nonexist: "},
		{"allow = a b", "1", "allow "},
	} {
		s.env["SHORT"] = "short"
		s.write(s.config, tc.file+"\n")
		var from []string
		for _, n := range strings.Fields(tc.at) {
			from = append(from, s.config+":"+n)
		}
		want := "(from " + strings.Join(from, ", ") + ")"
		code := s.do("--print-policy", "--", "true")
		found := false
		for line := range strings.Lines(s.err.String()) {
			if line, ok := strings.CutPrefix(line, "ai-sandbox: error: "); ok && strings.HasPrefix(line, tc.want) {
				found = true
				if !strings.Contains(line, want) || strings.Contains(line, "--") && !strings.Contains(line, "---") {
					t.Errorf("%q: %s", tc.file, line)
				}
			}
		}
		if code != 125 || !found {
			t.Errorf("%q: exit %d, no %q: %s", tc.file, code, tc.want, s.err.String())
		}
	}
	// A variable and a flag are named likewise.
	s.write(s.config, "")
	s.env["AISB_ENV"] = "FOO_UNSET"
	if s.do("--print-policy", "--env", "BAR_UNSET", "pi"); !strings.Contains(s.err.String(), "env FOO_UNSET is unset or empty here; give it a value, or don't pass it (from AISB_ENV)\n") ||
		!strings.Contains(s.err.String(), "env BAR_UNSET is unset or empty here; give it a value, or don't pass it (from --env)\n") {
		t.Error(s.err.String())
	}
}
