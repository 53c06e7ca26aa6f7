package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ai-sandbox/policy"
	"ai-sandbox/tests/hostile"
)

// A rung is one layer of TestPrecedence: where it may be set, and how it is.
type rung struct {
	source Source // 0: a profile's, which stands in a file
	origin func(Option) string
	set    func(l *Layers, o Option, values ...string) error
}

func lines(o Option, values []string) string {
	var b strings.Builder
	for _, v := range values {
		b.WriteString(o.Key + " = " + v + "\n")
	}
	return b.String()
}

// into adds the lines of a file's own or, with a profile's name, of a profile.
func into(f *File, parse func(string, []byte) (File, error), name, profile, text string) error {
	if profile != "" {
		text = "[profile " + profile + "]\n" + text
	}
	more, err := parse(name, []byte("#\n"+text))
	f.Items = append(f.Items[:len(f.Items):len(f.Items)], more.Items...)
	if len(more.Profiles) > 0 { // with what is in it already
		f.Profiles = []Profile{{Name: profile, Items: append(f.profile(profile), more.Profiles[0].Items...)}}
	}
	return err
}

var rungs = []rung{
	{InFile, func(Option) string { return "user:2" }, func(l *Layers, o Option, values ...string) error {
		return into(&l.User, ParseFile, "user", "", lines(o, values))
	}},
	{InFile, func(Option) string { return "profile p (user:3)" }, func(l *Layers, o Option, values ...string) error {
		return into(&l.User, ParseFile, "user", "p", lines(o, values))
	}},
	{InProject, func(Option) string { return ".ai-sandbox/config:2" }, func(l *Layers, o Option, values ...string) error {
		return into(&l.Project, ParseProject, ProjectFile, "", lines(o, values))
	}},
	{InProject, func(Option) string { return "profile p (.ai-sandbox/config:3)" }, func(l *Layers, o Option, values ...string) error {
		return into(&l.Project, ParseProject, ProjectFile, "p", lines(o, values))
	}},
	{InEnv, Option.Env, func(l *Layers, o Option, values ...string) error {
		items, err := FromEnviron(NewEnviron([]string{o.Env() + "=" + strings.Join(values, " "), "PATH=/bin"}))
		l.Env = append(l.Env, items...)
		return err
	}},
	{InFlag, func(o Option) string { return "--" + o.Flag() }, func(l *Layers, o Option, values ...string) error {
		for _, v := range values {
			l.Flags = append(l.Flags, Item{o.Key, v, "--" + o.Flag()})
		}
		return nil
	}},
}

// Every option goes through all layers that it may be set in, each beating those
// before: built-in, the user's file and its profile, the project's file and its
// profile, the environment, a flag. A list adds up, and what is emptied in one
// layer is gone.
func TestPrecedence(t *testing.T) {
	for _, o := range Options {
		t.Run(o.Key, func(t *testing.T) {
			value := func(n int) string {
				switch {
				case o.Kind == Bool:
					return []string{"true", "false"}[n%2]
				case o.Values != nil:
					return o.Values[n%len(o.Values)]
				case o.Kind == Path, o.Kind == Script && rungs[n].source != InProject:
					return "/" + string(rune('a'+n))
				}
				return string(rune('a' + n))
			}
			builtIn := []Item{}
			if o.Default != "" {
				builtIn = append(builtIn, Item{o.Key, o.Default, BuiltIn})
			}
			check := func(l Layers, want []Item, what string) {
				t.Helper()
				s, err := l.Settle()
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if got := append([]Item{}, s[o.Key]...); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: got %v, want %v", what, got, want)
				}
			}
			// The profile has to be chosen by what beats it: both files know it.
			l := Layers{Flags: []Item{{profileKey, "p", "--profile"}}}
			l.User.Profiles = []Profile{{Name: "p"}}
			if o.Key == profileKey {
				l = Layers{}
				l.User.Profiles = []Profile{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}, {Name: "f"}}
			}
			want := builtIn
			if o.Key != profileKey {
				check(l, want, "built-in")
			}
			for n, r := range rungs {
				inProfile := strings.HasPrefix(r.origin(o), "profile ")
				if allowed := o.In(r.source) && !(o.Key == profileKey && inProfile); !allowed {
					if err := r.set(&Layers{}, o, value(n)); err == nil && r.source != InFlag {
						t.Errorf("it is taken from %s", r.origin(o))
					}
					continue
				}
				if err := r.set(&l, o, value(n)); err != nil {
					t.Fatal(err)
				}
				if o.Kind != List {
					want = nil
				}
				want = append(want[:len(want):len(want)], Item{o.Key, value(n), r.origin(o)})
				check(l, want, r.origin(o))

				// The same, emptied by the next layer that it may stand in.
				for m := n + 1; m < len(rungs); m++ {
					if r := rungs[m]; o.In(r.source) && r.source != InFlag && o.Key != profileKey {
						emptied := Layers{User: l.User, Project: l.Project, Env: l.Env, Flags: l.Flags}
						if err := r.set(&emptied, o, ""); err != nil {
							t.Fatal(err)
						}
						check(emptied, builtIn, r.origin(o)+", emptied")
						break
					}
				}
			}
		})
	}
}

func TestEmptied(t *testing.T) {
	f, err := ParseFile("f", []byte("allow = a.example.com\nallow =\nallow = b.example.com\nnet = none\n"))
	if err != nil {
		t.Fatal(err)
	}
	file := f.Items
	env, err := FromEnviron(Environ{"AISB_NET": ""})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Resolve(file, env)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Values("allow"); !reflect.DeepEqual(got, []string{"b.example.com"}) {
		t.Errorf("allow %q", got)
	}
	if s.Text("net") != "" { // the runtime's own
		t.Errorf("net %q", s.Text("net"))
	}
	if s, err = Resolve(file, []Item{{"allow", "", "AISB_ALLOW"}}); err != nil || len(s["allow"]) != 0 {
		t.Errorf("allow %v (%v)", s["allow"], err)
	}
	env, err = FromEnviron(Environ{"AISB_ALLOW": " c.example.com\td.example.com:8443 "})
	if err != nil || len(env) != 2 || env[1].Value != "d.example.com:8443" {
		t.Errorf("env %v (%v)", env, err)
	}
}

func TestRefused(t *testing.T) {
	file := func(text string) error {
		f, err := ParseFile("~/config", []byte(text))
		if err != nil {
			return err
		}
		_, err = Layers{User: f}.Settle()
		return err
	}
	project := func(text string) error {
		_, err := ParseProject(".ai-sandbox/config", []byte(text))
		return err
	}
	env := func(s string) error {
		items, err := FromEnviron(NewEnviron([]string{s}))
		if err != nil {
			return err
		}
		_, err = Resolve(items)
		return err
	}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{file("images = pi\nharness_packages = codex"), `harness_packages is set again, after line 1 (from ~/config:2); keep one of them`},
		{file("\nnte = none"), `key "nte" is unknown (from ~/config:2); did you mean net?`},
		{file("alow = x"), `key "alow" is unknown (from ~/config:1); did you mean allow?`},
		{file("ALLOW = x"), `key "ALLOW" is unknown (from ~/config:1); did you mean allow?`},
		{file("No_Cwd = x"), `key "No_Cwd" is unknown (from ~/config:1); did you mean no_cwd?`},
		{env("AISB_allow=x"), `variable "AISB_allow" is not one of ai-sandbox's (from the environment); did you mean AISB_ALLOW?`},
		{file("wat = x"), `key "wat" is unknown (from ~/config:1); remove the line`},
		{file("Net = none"), `key "Net" is unknown (from ~/config:1); did you mean net?`},
		{file("net none"), `"net none" is not a setting (from ~/config:1); write key = value`},
		{file("[net]"), `"[net]" begins no profile (from ~/config:1); write [profile NAME], with a NAME of a-z, 0-9, - and _`},
		{file("[profile]"), `"[profile]" begins no profile (from ~/config:1); write [profile NAME], with a NAME of a-z, 0-9, - and _`},
		{file("[profile Work]"), `"Work" is not a profile's name (from ~/config:1); write [profile NAME], with a NAME of a-z, 0-9, - and _`},
		{file("[profile a b]"), `"a b" is not a profile's name (from ~/config:1); write [profile NAME], with a NAME of a-z, 0-9, - and _`},
		{file("[profile a] # mine"), `"[profile a] # mine" begins no profile (from ~/config:1); write [profile NAME], with a NAME of a-z, 0-9, - and _`},
		{file("[profile a]\n[profile b]\n[profile a]"), "profile a begins again, after line 1 (from ~/config:3); put its settings together"},
		{file("[profile a]\nprofile = b"), "a profile can't choose a profile (from ~/config:2); put the line before the first [profile NAME]"},
		{file("[profile a]\nnet = nnoe"), `net "nnoe" is unknown (from profile a (~/config:2)); use gated or unix or none or host or learn`},
		{file("[profile a]\nnet = none\nnet = gated"), "net is set again, after line 2 (from ~/config:3); keep one of them"},
		{file("profile = gatde"), `profile "gatde" is unknown (from ~/config:1); did you mean gated? there are bwrap-local, gated, local`},
		{file("profile = work\n[profile home]\n[profile local]"), `profile "work" is unknown (from ~/config:1); choose from bwrap-local, gated, home, local`},
		{file("net = none\nnet = gated"), "net is set again, after line 1 (from ~/config:2); keep one of them"},
		{file("net = nnoe"), `net "nnoe" is unknown (from ~/config:1); use gated or unix or none or host or learn`},
		{file("runtime = docker"), `runtime "docker" is unknown (from ~/config:1); use podman or local`},
		{file("ephemeral_home = yes"), `ephemeral_home is "yes", which is neither true nor false (from ~/config:1); write true or false`},
		{file("report = /x"), "report can't be set in a file (from ~/config:1); use --report"},
		{file("allow = a.example.com # mine"), "a comment can't follow a value (from ~/config:1); give the comment a line of its own"},
		{file("ca_file = ca.pem"), `ca_file "ca.pem" is not an absolute path (from ~/config:1); begin it with / or ~/`},
		{file("\ufeffnet = none"), "the line holds a character that is not printable (from ~/config:1); retype it as plain text"},
		{file("allow = a\x00b"), "the line holds a character that is not printable (from ~/config:1); retype it as plain text"},
		{file("allow = \u202eb"), "the line holds a character that is not printable (from ~/config:1); retype it as plain text"},
		{file("allow = \xff"), "the line holds a character that is not printable (from ~/config:1); retype it as plain text"},
		{project("cache_dir = /x"), "cache_dir can't be set in a project's file (from .ai-sandbox/config:1); remove the line, or move it to your own file"},
		{project("bind_harness_home = true"), "bind_harness_home can't be set in a project's file (from .ai-sandbox/config:1); remove the line, or move it to your own file"},
		{project("report = /x"), "report can't be set in a file (from .ai-sandbox/config:1); use --report"},
		{project("cache_dri = /x"), `key "cache_dri" is unknown (from .ai-sandbox/config:1); remove the line`},
		{env("AISB_NTE=none"), `variable "AISB_NTE" is not one of ai-sandbox's (from the environment); did you mean AISB_NET?`},
		{env("AISB_GIGABYTES=1g"), `variable "AISB_GIGABYTES" is not one of ai-sandbox's (from the environment); unset it`},
		{env("AISB_ALLOW_PRIVATE=127.0.0.1"), "allow_private can't be set by a variable (from the environment); use --allow-private"},
		{env("AISB_NET=open"), `net "open" is unknown (from AISB_NET); use gated or unix or none or host or learn`},
	} {
		if tc.err == nil || tc.err.Error() != tc.want {
			t.Errorf("got  %v\nwant %s", tc.err, tc.want)
		}
	}
	if err := env("AISB_TEST_X=1"); err != nil {
		t.Errorf("the tests' own variable: %v", err)
	}
}

// A profile lies between the file's own settings and the variables.
func TestProfiles(t *testing.T) {
	const text = "allow = file.example.com\nnet = gated\nephemeral_home = true\n" +
		"[profile work]\nallow = work.example.com\nnet = none\nephemeral_home =\n" +
		"[profile bare]\nallow =\nallow = bare.example.com\n" +
		"[ profile x]\n" +
		"[profile local]\nnet = none\n"
	if _, err := ParseFile("f", []byte(text)); err == nil {
		t.Error("a section with a space before its word is taken")
	}
	f, err := ParseFile("f", []byte(strings.Replace(text, "[ profile x]\n", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name                      string
		file, env, flag           string // of the key profile
		allow, net, runtime, from string
	}{
		{name: "none", allow: "file.example.com", net: "gated", runtime: "podman", from: "f:2"},
		{name: "flag", flag: "work", allow: "file.example.com work.example.com", net: "none", runtime: "podman", from: "profile work (f:6)"},
		{name: "variable", env: "work", allow: "file.example.com work.example.com", net: "none", runtime: "podman", from: "profile work (f:6)"},
		{name: "file", file: "work", allow: "file.example.com work.example.com", net: "none", runtime: "podman", from: "profile work (f:6)"},
		{name: "flag over variable over file", file: "gated", env: "work", flag: "bare", allow: "bare.example.com", net: "gated", runtime: "podman", from: "f:2"},
		{name: "emptied", file: "work", env: "", allow: "file.example.com", net: "gated", runtime: "podman", from: "f:2"},
		{name: "built in", flag: "bwrap-local", allow: "file.example.com", net: "none", runtime: "local", from: "profile bwrap-local (built-in)"},
		{name: "over the built-in one", flag: "local", allow: "file.example.com", net: "none", runtime: "local", from: "profile local (f:12)"},
	} {
		file := f
		var env, flags []Item
		if tc.file != "" {
			file.Items = append([]Item{{profileKey, tc.file, "f:0"}}, f.Items...)
		}
		if tc.env != "" || tc.name == "emptied" {
			env = []Item{{profileKey, tc.env, "AISB_PROFILE"}}
		}
		if tc.flag != "" {
			flags = []Item{{profileKey, tc.flag, "--profile"}}
		}
		s, err := Layers{User: file, Env: env, Flags: flags}.Settle()
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if got := strings.Join(s.Values("allow"), " "); got != tc.allow || s.Text("net") != tc.net || s.Text("runtime") != tc.runtime || s["net"][0].Origin != tc.from {
			t.Errorf("%s: %s, %v, %s", tc.name, got, s["net"], s.Text("runtime"))
		}
		// Whatever the profile says, a variable beats it, and a flag that.
		s, err = Layers{User: file, Env: append(env, Item{"net", "none", "AISB_NET"}), Flags: append(flags, Item{"net", "unix", "--net"})}.Settle()
		if err != nil || s["net"][0].Origin != "--net" {
			t.Errorf("%s: %v, %v", tc.name, s["net"], err)
		}
	}
	if s, err := (Layers{User: f, Flags: []Item{{profileKey, "work", "--profile"}}}).Settle(); err != nil || s["ephemeral_home"][0].Origin != BuiltIn {
		t.Errorf("emptied by the profile: %v, %v", s["ephemeral_home"], err)
	}
}

// What is built in is made of settings that a file may hold.
func TestBuiltInProfiles(t *testing.T) {
	for _, p := range Profiles {
		if _, err := section("[profile " + p.Name + "]"); err != nil {
			t.Error(err)
		}
		for _, it := range p.Items {
			o, ok := Lookup(it.Key)
			if !ok || !o.In(InFile) || o.check(it) != nil || it.Origin != "profile "+p.Name+" (built-in)" {
				t.Errorf("profile %s has %+v", p.Name, it)
			}
		}
	}
}

func TestEveryProblem(t *testing.T) {
	_, err := ParseFile("f", []byte("a = 1\nb = 2\nnet = none"))
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("got %v", err)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	if f, err := ReadFile(path); f.Items != nil || f.Profiles != nil || err != nil {
		t.Errorf("no file: %v, %v", f, err)
	}
	if err := os.WriteFile(path, []byte("net = none\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := ReadFile(path)
	if err != nil || len(f.Items) != 1 || f.Items[0] != (Item{"net", "none", path + ":1"}) {
		t.Errorf("%v, %v", f, err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "other users can write this file") {
		t.Errorf("a file that anyone can write: %v", err)
	}
	if _, err := ReadFile(dir); err == nil {
		t.Error("a directory is read")
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(fifo); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a FIFO: %v", err)
	}
	if err := os.WriteFile(path, []byte("#"+strings.Repeat("x", maxFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "longer than 1 MiB") {
		t.Errorf("a long file: %v", err)
	}
	if os.Getuid() == 0 { // only root can give a file away
		if err := os.Chown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "another user owns this file") {
			t.Errorf("another user's file: %v", err)
		}
	}
}

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range Options {
		if seen[o.Key] || o.Usage == "" || o.Topic == "" || o.Use == 0 {
			t.Errorf("option %+v", o)
		}
		seen[o.Key] = true
		if o.Key != strings.ToLower(o.Key) || strings.Contains(o.Key, "-") {
			t.Errorf("key %s", o.Key)
		}
	}
	for _, key := range []string{"cache_dir", "bind_harness_home", "report", "dry_run"} {
		if o, _ := Lookup(key); o.In(InProject) {
			t.Errorf("%s can be set in a project's file", key)
		}
	}
	if o, _ := Lookup("allow_private"); o.In(InEnv) {
		t.Error("allow_private can be set by a variable")
	}
}

func TestNear(t *testing.T) {
	for _, tc := range [][3]string{
		{"nte", "net", "net"}, {"ent", "net", "net"}, {"nett", "net", "net"}, {"ner", "net", "net"},
		{"allwo", "allow", "allow"}, {"alllow", "allow", "allow"}, {"alow", "allow", "allow"}, {"allowed", "allow", ""}, {"export", "report", ""}, {"runtmei", "runtime", "runtime"}, {"session", "runtime", ""},
		{"model", "net", ""}, {"p", "net", ""}, {"ne", "net", ""}, {"net", "net", ""}, {"mode", "gate", ""}, {"tents", "net", ""},
	} {
		if got := Near(tc[0], []string{tc[1]}); got != tc[2] {
			t.Errorf("%s is near %q, want %q", tc[0], got, tc[2])
		}
	}
}

// What a file or a variable says of a run, it says of a sandbox of up too, and
// config tells it: each of the three has the flag that says otherwise.
func TestVerbsOfARun(t *testing.T) {
	for _, o := range Options {
		if o.Use&UseRun != 0 && o.In(InFile|InEnv) && o.Use&UseStart != UseStart {
			t.Errorf("%s is for a run, and not for up and config", o.Key)
		}
	}
}

func TestDirs(t *testing.T) {
	d := Environ{"HOME": "/h", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r"}.Dirs("/other")
	if want := (Dirs{"/h", "/h/.config/ai-sandbox", "/s/ai-sandbox", "/h/.cache/ai-sandbox", "/r"}); d != want {
		t.Errorf("got %+v, want %+v", d, want)
	}
	if d := (Environ{}).Dirs("/h"); d.Home != "/h" || d.Runtime != "" {
		t.Errorf("got %+v", d)
	}
}

// FuzzFromEnviron: whatever a variable's name and value, it is one of ours and is
// read as its option, or is refused, or is none of our business.
func FuzzFromEnviron(f *testing.F) {
	for _, o := range Options {
		f.Add(o.Env(), "a b")
	}
	for i, s := range hostile.Strings {
		f.Add(Options[i%len(Options)].Env(), s)
		f.Add(EnvPrefix+s, s)
	}
	f.Add("aisb_net", "none")
	f.Add("AISB_net", "none")
	f.Add(TestPrefix+"STORE", "x")
	f.Fuzz(func(t *testing.T, name, value string) {
		items, err := FromEnviron(Environ{name: value})
		ours := strings.HasPrefix(name, EnvPrefix) && !strings.HasPrefix(name, TestPrefix)
		if ours != (err != nil || len(items) > 0) || err != nil && len(items) > 0 {
			t.Fatalf("%q=%q gives %+v, %v", name, value, items, err)
		}
		var read []string
		for _, it := range items {
			o, ok := Lookup(it.Key)
			if !ok || !o.In(InEnv) || o.Env() != name || it.Origin != name {
				t.Errorf("%q=%q gives %+v", name, value, it)
			}
			if o.Kind != List && it.Value != value || o.Kind == List && len(strings.Fields(it.Value)) > 1 {
				t.Errorf("%q=%q gives %q", name, value, it.Value)
			}
			read = append(read, it.Value)
		}
		if !slices.Equal(strings.Fields(strings.Join(read, " ")), strings.Fields(value)) && len(items) > 0 {
			t.Errorf("%q=%q is read as %q", name, value, read)
		}
		s, err2 := Resolve(items)
		for key := range s {
			for _, it := range s[key] {
				o, _ := Lookup(key)
				if it.Origin != BuiltIn && (it.Key != key || o.check(it) != nil) {
					t.Errorf("%q=%q settles as %+v", name, value, it)
				}
			}
		}
		for _, err := range []error{err, err2} {
			if err != nil && hostile.Printed(policy.Printable(err.Error())) != nil {
				t.Errorf("%q=%q: %v", name, value, err)
			}
		}
	})
}

func FuzzParseFile(f *testing.F) {
	for _, s := range []string{"net = none", "allow =\nallow = x", "# c\n= x", "env = A=b # c", "\x00", "net=none\r\n", "ca_file = ~/x", "profile = a\n[profile a]\nallow = x\n[profile\tb ]\nallow ="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		file, err := ParseFile("f", []byte(s))
		if err != nil {
			return
		}
		items := file.Items
		for _, p := range file.Profiles {
			if !profileName().MatchString(p.Name) {
				t.Errorf("%q gives the profile %q", s, p.Name)
			}
			for _, it := range p.Items {
				if !strings.HasPrefix(it.Origin, "profile "+p.Name+" (f:") {
					t.Errorf("origin %q", it.Origin)
				}
				it.Origin = "f:"
				items = append(items, it)
			}
		}
		for _, it := range items {
			if _, ok := Lookup(it.Key); !ok || strings.ContainsAny(it.Value, "\x00\n\r") || it.Value != strings.TrimSpace(it.Value) {
				t.Errorf("%q gives %+v", s, it)
			}
			if !strings.HasPrefix(it.Origin, "f:") {
				t.Errorf("origin %q", it.Origin)
			}
		}
	})
}

// What a file may call images is harness_packages everywhere else.
func TestImagesInAFile(t *testing.T) {
	for _, parse := range []func(string, []byte) (File, error){ParseFile, ParseProject} {
		f, err := parse("f", []byte("images = pi,claude\n"))
		if err != nil || len(f.Items) != 1 || f.Items[0] != (Item{Key: "harness_packages", Value: "pi,claude", Origin: "f:1"}) {
			t.Errorf("%+v, %v", f.Items, err)
		}
	}
	if _, err := FromEnviron(NewEnviron([]string{"AISB_IMAGES=pi"})); err == nil {
		t.Error("it is a variable, too")
	}
}
