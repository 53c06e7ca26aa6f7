package config

import (
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// An item that widens has to be trusted, so each row is judged here, in both
// directions where it has two.
func TestWider(t *testing.T) {
	for _, tc := range []struct {
		lower, project string // lines of the user's file and of the project's
		wider          string // "key=value" of each that widens
	}{
		{"", "net = none", ""},
		{"", "net = unix", ""},
		{"", "net = gated", ""},
		{"", "net = host", "net=host"},
		{"net = none", "net = none", ""},
		{"net = none", "net = unix", "net=unix"},
		{"net = none", "net = gated", "net=gated"},
		{"net = none", "net =", "net="},
		{"net = unix", "net = gated", "net=gated"},
		{"net = unix", "net =", "net="},
		{"net = gated", "net = unix", ""},
		{"net = host", "net = gated", ""},
		{"net = host", "net =", ""},

		{"", "allow = a.example.com", "allow=a.example.com"},
		{"allow = a.example.com", "allow =", ""},
		{"allow = a.example.com", "allow = a.example.com", ""},
		{"allow = .example.com", "allow = a.example.com\nallow = example.com:443\nallow = b.test", "allow=b.test"},
		{"allow = example.com", "allow =\nallow = example.com:443\nallow = example.com:8443", "allow=example.com:8443"},
		{"allow = 192.0.2.0/24", "allow = 192.0.2.7\nallow = 192.0.2.0/23", "allow=192.0.2.0/23"},
		{"allow = a.example.com", "allow = a b", "allow=a b"},
		{"allow = 127.0.0.1", "allow_private = 127.0.0.1", "allow_private=127.0.0.1"},

		{"allow_private = 169.254.0.0/16", "allow_private =\nallow_private = 169.254.169.254", "allow_private=169.254.169.254"},
		{"allow_private = 169.254.0.0/16", "allow_private = 169.254.169.0/24", ""},
		{"allow_private = 169.254.169.254", "allow_private =\nallow_private = 169.254.169.254:80", ""},

		{"", "env = A=1", "env=A=1"},
		{"", "env = A", "env=A"},
		{"env = A=1", "env = A=1", ""},
		{"env = A=1", "env = A=2", "env=A=2"},
		{"env = A=1\nenv = A=2", "env = A=1", "env=A=1"},
		{"env = A=1\nenv = A=2", "env = A=2", ""},
		{"env = A=1", "env = A", "env=A"},
		// A constant stands in the place of a value that could enter instead.
		{"env = A=1", "env =", "env="},
		{"env = A=1\nenv = B", "env =\nenv = B", "env="},
		{"env = A=1\nenv = B", "env =\nenv = A=1", ""},
		{"env = B\nenv = A=1", "env =\nenv = A=1\nenv = B", ""},
		{"env = A", "env =", ""},
		{"env = PATH", "env =", "env="}, // ours comes in its place

		{"", "ephemeral_home = true", ""},
		{"ephemeral_home = true", "ephemeral_home = false", "ephemeral_home=false"},
		{"ephemeral_home = true", "ephemeral_home =", "ephemeral_home=false"},
		{"", "fs = ro", ""},
		{"fs = ro", "fs = rw", "fs=rw"},
		{"fs = ro", "fs =", "fs=rw"},
		{"", "fs = rw", ""},

		// What has no order: any change.
		{"", "gate_engine = squid", "gate_engine=squid"},
		{"gate = work", "gate =", "gate="},
		{"gate = work", "gate = other", "gate=other"},
		{"gate = work", "gate = work", ""},
		{"", "runtime = local", "runtime=local"},
		{"runtime = local", "runtime =", "runtime=podman"},
		{"", "runtime = podman", ""},
		{"", "base = docker.io/library/debian:bookworm", "base=docker.io/library/debian:bookworm"},
		{"", "ca_file = /ca.pem", "ca_file=/ca.pem"},
		{"ca_file = /ca.pem", "ca_file =", "ca_file="},
		{"", "node_version = 22.0.0\nnode_mirror = https://mirror.example.com", "node_version=22.0.0 node_mirror=https://mirror.example.com"},
	} {
		user, err1 := ParseFile("user", []byte(tc.lower))
		project, err2 := ParseFile("project", []byte(tc.project))
		lower, err3 := Resolve(user.Items)
		with, err4 := Resolve(user.Items, project.Items)
		for _, err := range []error{err1, err2, err3, err4} {
			if err != nil {
				t.Fatalf("%q, %q: %v", tc.lower, tc.project, err)
			}
		}
		got := ""
		for i, it := range Wider(lower, with) {
			if i > 0 {
				got += " "
			}
			got += it.Key + "=" + it.Value
		}
		if got != tc.wider {
			t.Errorf("%q over %q widens by %q, want %q", tc.project, tc.lower, got, tc.wider)
		}
		if again := Wider(with, with); again != nil {
			t.Errorf("%q over itself widens by %v", tc.project, again)
		}
	}
}

// A list that a new row leaves without a Widening is safe: an entry that is
// there already may mean something else at another place.
func TestAnyChangeOfAList(t *testing.T) {
	o := Option{Key: "k", Kind: List}
	lower := []Item{{"k", "a", "user:1"}, {"k", "b", "user:2"}}
	for _, tc := range []struct {
		with  []Item
		wider []Item
	}{
		{lower, nil},
		{append(lower[:2:2], Item{"k", "a", "project:1"}), []Item{{"k", "a", "project:1"}}},
		{nil, []Item{{Key: "k"}}},
		{lower[:1], []Item{{Key: "k"}}},
		{[]Item{lower[1], lower[0]}, []Item{{Key: "k"}}},
	} {
		if got := o.wider(lower, tc.with); !reflect.DeepEqual(got, tc.wider) {
			t.Errorf("%v: %v, want %v", tc.with, got, tc.wider)
		}
	}
	o.Widens = adding
	if got := o.wider(lower, append(lower[1:2:2], Item{"k", "c", "project:2"})); !reflect.DeepEqual(got, []Item{{"k", "c", "project:2"}}) {
		t.Errorf("adding: %v", got)
	}
}

// The same text in both files is the same setting, whatever its kind, but for what
// names another file there: a script, whose item in the project's file always widens.
func TestSameTextInBothFiles(t *testing.T) {
	values := []string{"/x", "~/x", "~", "~x", "~root/x", "./~/x", "x", "./x", ".ai-sandbox/x", "true", "1"}
	scripts := 0
	for _, o := range Options {
		if !o.In(InFile) || !o.In(InProject) {
			continue
		}
		for _, v := range append(values[:len(values):len(values)], o.Values...) {
			for _, section := range []string{"", "[profile p]\n"} {
				if o.Key == profileKey && section != "" {
					continue
				}
				text := []byte(section + o.Key + " = " + v + "\n")
				user, err1 := ParseFile("user", text)
				project, err2 := ParseProject(ProjectFile, text)
				l := Layers{User: user, Project: project, Flags: []Item{{profileKey, "p", "--profile"}}}
				if o.Key == profileKey {
					l.Flags = nil
				}
				wider := l.Wider(File{})
				switch o.Kind {
				case Text, Bool, List:
				case Path: // absolute, or in the user's home
					if err2 == nil && v[0] != '/' && !strings.HasPrefix(v, "~/") {
						t.Errorf("%s: a project's file may say %q, which begins where ai-sandbox is started", o.Key, v)
					}
				case Script:
					if err1 == nil && err2 == nil {
						t.Errorf("%s: both files may say %q, which is another file in each", o.Key, v)
					}
					if err2 == nil && len(wider) == 0 {
						t.Errorf("%s = %s in the project's file does not widen", o.Key, v)
					}
					scripts++
				default:
					t.Fatalf("%s: say here whether its kind means the same in both files", o.Key)
				}
				if err1 == nil && err2 == nil && o.Kind != Script && o.Kind != List && len(wider) > 0 {
					t.Errorf("%s = %s in both files widens: %v", o.Key, v, wider)
				}
			}
		}
	}
	if scripts == 0 {
		t.Error("there is no script among the options")
	}
	// Wherever it stands there, and whatever its row says about widening.
	mine := Item{"setup", "~/x", "/home/u/config:1"}
	for _, origin := range []string{ProjectFile + ":1", "profile gated (" + ProjectFile + ":2)"} {
		for _, widens := range []Widening{nil, adding} {
			its := Item{"setup", "~/x", origin}
			o := Option{Key: "setup", Kind: Script, Widens: widens}
			if got := o.wider([]Item{mine}, []Item{its}); !reflect.DeepEqual(got, []Item{its}) {
				t.Errorf("%s over the user's own: %v", origin, got)
			}
			if got := o.wider([]Item{mine}, []Item{mine}); got != nil {
				t.Errorf("the user's own over itself: %v", got)
			}
		}
	}
}

func TestAtMost(t *testing.T) {
	number := func(s string) (float64, error) {
		if s == "" {
			return math.Inf(1), nil
		}
		return strconv.ParseFloat(s, 64)
	}
	widens := atMost(number)
	for _, tc := range []struct {
		lower, value string
		want         bool
	}{
		{"4", "3", false}, {"4", "4", false}, {"4", "5", true}, {"", "5", false}, {"4", "", true}, {"", "", false}, {"4", "x", true}, {"x", "4", true}, {"4", "NaN", true},
	} {
		if got := widens([]string{tc.lower}, tc.value); got != tc.want {
			t.Errorf("%q over %q: %v", tc.value, tc.lower, got)
		}
	}
}
