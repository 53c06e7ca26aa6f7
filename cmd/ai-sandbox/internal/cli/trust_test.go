package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/tests/schema"
)

// trustFile writes the project's file.
func (s *stage) trustFile(text string) {
	s.t.Helper()
	s.write(filepath.Join(s.project, ".ai-sandbox/config"), text)
}

// terminal is a new one: the side that a person sits at, and the program's.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// Asked on a terminal, only a yes that is typed after the question counts, and
// what was shown is what is trusted.
func TestTrust(t *testing.T) {
	for _, tc := range []struct {
		name, before, answer string // typed before and after the question
		swap                 string // the file after the question
		code                 int
		trusted              bool
	}{
		{name: "yes", answer: "yes\n", trusted: true},
		{name: "y", answer: "y\n", code: 1},
		{name: "no", answer: "no\n", code: 1},
		{name: "nothing", answer: "\n", code: 1},
		{name: "hung up", answer: "\x04", code: 1},
		{name: "said before", before: "yes\n", answer: "no\n", code: 1},
		{name: "changed while asked", answer: "yes\n", swap: "allow = evil.example.com\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStage(t)
			s.trustFile("allow = api.example.com\nfs = ro\n")
			person, program := terminal(t)
			if _, err := person.WriteString(tc.before); err != nil {
				t.Fatal(err)
			}
			done := make(chan int)
			go func() {
				done <- Main(context.Background(), []string{"trust"}, s.env, Streams{In: program, Out: program, Err: &s.err}, s.engine)
			}()
			var said bytes.Buffer
			if err := person.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			for buf := make([]byte, 4096); !strings.Contains(said.String(), "Write yes: "); {
				n, err := person.Read(buf)
				if err != nil {
					t.Fatalf("%v after %q", err, said.String())
				}
				said.Write(buf[:n])
			}
			if !strings.Contains(said.String(), "+ allow = api.example.com  # widens\r\n+ fs = ro\r\n") {
				t.Errorf("it says %q", said.String())
			}
			if tc.swap != "" {
				s.trustFile(tc.swap)
			}
			if _, err := person.WriteString(tc.answer); err != nil {
				t.Fatal(err)
			}
			if code := <-done; code != tc.code {
				t.Errorf("exit %d: %s", code, s.err.String())
			}
			if code := s.do("--print-policy"); (code == 0) != tc.trusted {
				t.Errorf("a run: exit %d: %s", code, s.err.String())
			}
			if tc.swap != "" && !strings.Contains(s.err.String(), "+ allow = evil.example.com  # widens") {
				t.Errorf("a run says %s", s.err.String())
			}
		})
	}
}

// A file that ai-sandbox obeys may not lie where a sandbox writes, whoever names it.
func TestFileInProject(t *testing.T) {
	s := newStage(t)
	ca := filepath.Join(s.project, "ca.pem")
	s.write(ca, string(testCA(t)))
	s.trustFile("ca_file = " + ca + "\n")
	if code := s.do("trust", "--yes"); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}
	want := "ai-sandbox: error: ca_file leads into the project, where a sandboxed command can change it (from .ai-sandbox/config:1); keep it elsewhere\n"
	if code := s.do("--print-policy"); code != 125 || s.err.String() != want {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
	// Nor where another sandbox writes.
	home := filepath.Join(filepath.Join(s.env["XDG_STATE_HOME"], "ai-sandbox"), "homes", "x", "ca.pem")
	s.write(home, string(testCA(t)))
	s.trustFile("ca_file = " + home + "\n")
	if code := s.do("trust", "--yes"); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}
	if code := s.do("--print-policy"); code != 125 || !strings.Contains(s.err.String(), "ca_file leads into "+filepath.Join(s.env["XDG_STATE_HOME"], "ai-sandbox")+", where a sandboxed command can change it") {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
	outside := filepath.Join(filepath.Dir(s.config), "ca.pem")
	s.write(outside, string(testCA(t)))
	s.trustFile("ca_file = " + outside + "\n")
	if code := s.do("trust", "--yes"); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}
	if code := s.do("--print-policy"); code != 0 || !strings.Contains(s.out.String(), "EXTRA CA") {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
	s.trustFile("")
	if code := s.do("trust", "--yes"); code != 0 || !strings.Contains(s.err.String(), "nothing is trusted here any more") {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}
	other := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(s.project))), "srv")
	link, work := filepath.Join(other, "link"), filepath.Join(other, "work")
	if err := os.MkdirAll(work, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.project, link); err != nil {
		t.Fatal(err)
	}
	s.write(filepath.Join(work, "ca.pem"), string(testCA(t)))
	for _, at := range []string{s.project, link, work, "elsewhere"} {
		mount := []string{"--print-policy", "--mount", work + ":/mnt:rw"}
		dir := filepath.Join(at, "cache")
		file := filepath.Join(at, "ca.pem")
		if at == "elsewhere" {
			dir, file = filepath.Join(other, "cache"), outside
		}
		for _, by := range []string{"flag", "file"} {
			for key, value := range map[string]string{"cache_dir": dir, "ca_file": file} {
				args, origin := mount, s.config+":1"
				s.write(s.config, key+" = "+value+"\n")
				if by == "flag" {
					s.write(s.config, "")
					origin = "--" + strings.ReplaceAll(key, "_", "-")
					args = append(slices.Clone(mount), origin, value)
				}
				code := s.do(args...)
				if refused := at != "elsewhere"; refused != (code == 125 && strings.Contains(s.err.String(), key+" leads into ") && strings.Contains(s.err.String(), "where a sandboxed command can change it (from "+origin+")")) || !refused && code != 0 {
					t.Errorf("%s %s by %s: exit %d: %s", key, value, by, code, s.err.String())
				}
			}
		}
	}
}

// So it is with every option that names one, wherever it may be set; but for what
// ai-sandbox takes nothing from.
func TestObeyedFilesStayOutside(t *testing.T) {
	obeyed := 0
	for _, o := range config.Options {
		if o.Kind != config.Path && o.Kind != config.Script || o.Key == "agents_dir" || o.Key == "report" {
			continue
		}
		obeyed++
		for _, to := range []string{"project", "elsewhere"} {
			for _, by := range []config.Source{config.InFile, config.InEnv, config.InFlag} {
				if !o.In(by) {
					continue
				}
				s := newStage(t)
				path := filepath.Join(filepath.Dir(s.config), "x")
				if to == "project" {
					path = filepath.Join(s.project, "x")
				}
				args := []string{"--print-policy"}
				switch by {
				case config.InFile:
					s.write(s.config, o.Key+" = "+path+"\n")
				case config.InEnv:
					s.env[o.Env()] = path
				default:
					args = append(args, "--"+o.Flag(), path)
				}
				code := s.do(args...)
				says := s.err.String()
				if led := strings.Contains(says, o.Key+" leads into the project") || strings.Contains(says, o.Env()+" must be absolute and outside the project"); led != (to == "project") || led && code != 125 {
					t.Errorf("%s in %s, by %v: exit %d: %s", o.Key, to, by, code, says)
				}
				if by == config.InEnv && to == "project" && !strings.Contains(says, o.Env()+" must be") {
					t.Errorf("%s is judged only after the files are read: %s", o.Env(), says)
				}
			}
		}
	}
	if obeyed < 4 {
		t.Errorf("%d options were seen", obeyed)
	}
}

// A sandbox writes in more than the project: in the git directory of a worktree, and
// in what an agent gets of the user's home.
func TestFileWhereAnotherRunWrites(t *testing.T) {
	s := newStage(t)
	home := s.env["HOME"]
	main := filepath.Join(home, "main")
	s.write(filepath.Join(s.project, ".git"), "gitdir: "+main+"/.git/worktrees/w\n")
	for name, text := range map[string]string{"HEAD": "", "objects/x": "", "worktrees/w/gitdir": s.project + "/.git\n", "worktrees/w/commondir": "../..\n"} {
		s.write(filepath.Join(main, ".git", name), text)
	}
	for path, into := range map[string][2]string{ // without bind_harness_home, and with it
		main + "/.git/ca.pem":                   {main + "/.git", main + "/.git"},
		main + "/.git/worktrees/w/ca.pem":       {main + "/.git", main + "/.git"},
		main + "/ca.pem":                        {},
		home + "/.claude/projects/a/ca.pem":     {home + "/.claude/projects", home + "/.claude"},
		home + "/.pi/agent/sessions/--a/ca.pem": {home + "/.pi/agent/sessions", home + "/.pi"},
		home + "/.claude/ca.pem":                {"", home + "/.claude"},
		home + "/.codex/ca.pem":                 {"", home + "/.codex"},
	} {
		s.write(path, string(testCA(t)))
		for i, whole := range []bool{false, true} {
			s.write(s.config, fmt.Sprintf("runtime = local\nbind_harness_home = %v\nca_file = %s\n", whole, path))
			code := s.do("--print-policy", "--", "true")
			if into[i] == "" && code != 0 || into[i] != "" && (code != 125 || !strings.Contains(s.err.String(), "ca_file leads into "+into[i]+", where")) {
				t.Errorf("%s with bind_harness_home %v: exit %d: %s", path, whole, code, s.err.String())
			}
		}
	}
}

// Where the user's own file says that there is no project, nothing of it is read, also
// where the profile that a flag chooses is not in his file.
func TestNoProjectOfTheUsers(t *testing.T) {
	s := newStage(t)
	s.trustFile("[profile p]\nallow = evil.example.com\n")
	if code := s.do("--print-policy", "--profile", "p"); code != 125 || !strings.Contains(s.err.String(), "allow = evil.example.com") {
		t.Fatalf("the project's file is not read: exit %d: %s", code, s.err.String())
	}
	s.write(s.config, "no_cwd = true\n")
	if code := s.do("--print-policy", "--profile", "p"); code != 125 || !strings.Contains(s.err.String(), `profile "p" is unknown`) || strings.Contains(s.err.String(), "evil") {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
	if code := s.do("--print-policy", "--profile", "gated"); code != 0 || strings.Contains(s.out.String(), s.project) {
		t.Errorf("with a profile that is known: exit %d: %s%s", code, s.out.String(), s.err.String())
	}
}

// A trusted mount leads where it led when it was trusted: the command can make a
// link of what lies in the project, or in what else it writes.
func TestLedMount(t *testing.T) {
	s := newStage(t)
	base := filepath.Dir(filepath.Dir(filepath.Dir(s.project)))
	other, work, data := filepath.Join(base, "srv/other"), filepath.Join(base, "srv/work"), filepath.Join(s.project, "data")
	for _, d := range []string{other, filepath.Join(work, "data"), filepath.Join(data, "in")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("in", filepath.Join(data, "inner")); err != nil {
		t.Fatal(err)
	}
	s.trustFile("mount = " + data + ":/mnt/data\nmount = " + data + "/inner:/mnt/inner\nmount = " + work + ":/mnt/work:rw\nmount = " + work + "/data:/mnt/more\n")
	if code := s.do("trust", "--yes"); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}
	if code := s.do("--print-policy"); code != 0 || !strings.Contains(s.out.String(), "/mnt/more") {
		t.Fatalf("as it was trusted: exit %d: %s", code, s.err.String())
	}
	for _, d := range []string{data, filepath.Join(work, "data")} {
		if err := os.Rename(d, d+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(other, d); err != nil {
			t.Fatal(err)
		}
		want := "mount " + d + " is reached by a symbolic link in " + filepath.Dir(d) + ", where the command can lead it anywhere"
		if code := s.do("--print-policy"); code != 125 || !strings.Contains(s.err.String(), want) {
			t.Errorf("%s: exit %d: %s", d, code, s.err.String())
		}
		if err := os.Remove(d); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(d+".old", d); err != nil {
			t.Fatal(err)
		}
	}
	agents := filepath.Join(s.project, "agents")
	if err := os.Symlink(other, agents); err != nil {
		t.Fatal(err)
	}
	if code := s.do("--print-policy", "--fs", "ro", "--agents-dir", agents); code != 125 || !strings.Contains(s.err.String(), "agents_dir "+agents+" is reached by a symbolic link") {
		t.Errorf("agents: exit %d: %s", code, s.err.String())
	}
	if code := s.do("--print-policy", "--agents-dir", other); code != 0 {
		t.Errorf("agents: exit %d: %s", code, s.err.String())
	}
}

// A record that makes no sense is not a lack of one.
func TestDamagedTrust(t *testing.T) {
	s := newStage(t)
	s.trustFile("allow = a.example.com\n")
	if code := s.do("trust", "--yes"); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}
	list, err := filepath.Glob(filepath.Join(s.env["XDG_STATE_HOME"], "ai-sandbox/trust/*.json"))
	if err != nil || len(list) != 1 {
		t.Fatalf("records %v (%v)", list, err)
	}
	if p := s.policy(); texts(p.Net.Allow) != "a.example.com" {
		t.Errorf("allow %s", texts(p.Net.Allow))
	}
	s.write(list[0], "{}")
	for _, args := range [][]string{{"--print-policy"}, {"trust", "--yes"}} {
		if code := s.do(args...); code == 0 || !strings.Contains(s.err.String(), "is damaged; remove it") {
			t.Errorf("%q: exit %d: %s", args, code, s.err.String())
		}
	}
	if code := s.do("trust", "--revoke"); code != 0 {
		t.Errorf("revoke: exit %d: %s", code, s.err.String())
	}
	if code := s.do("--print-policy"); code != 125 || !strings.Contains(s.err.String(), "is not trusted") {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
}

// A stopped run shows a long file in part, and trust all of it.
func TestLongFile(t *testing.T) {
	s := newStage(t)
	var text strings.Builder
	for i := range 500 {
		fmt.Fprintf(&text, "allow = h%d.example.com\n", i)
	}
	s.trustFile(text.String())
	if code := s.do("--print-policy"); code != 125 || strings.Count(s.err.String(), "\n") != maxShown+3 || !strings.Contains(s.err.String(), "\n  ... and 440 lines more, which ai-sandbox trust shows\n") {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
	if s.do("trust"); strings.Count(s.out.String(), "# widens\n") != 500 {
		t.Errorf("trust shows %s", s.out.String())
	}
}

// The doctor looks with the project's settings, and says when a run would stop.
func TestDoctorInProject(t *testing.T) {
	s := newStage(t)
	s.trustFile("runtime = local\n")
	if code := s.do("doctor"); code != 1 || !strings.Contains(s.out.String(), "FAIL project's file ") || !strings.Contains(s.out.String(), "fix:             ai-sandbox trust\n") {
		t.Errorf("exit %d: %s%s", code, s.out.String(), s.err.String())
	}
	if !strings.Contains(s.out.String(), "FAIL podman ") {
		t.Errorf("it looks for what a run would not use: %s", s.out.String())
	}
	if code := s.do("trust", "--yes"); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}
	if s.do("doctor"); !strings.Contains(s.out.String(), "ok   project's file ") || !strings.Contains(s.out.String(), "-    podman ") {
		t.Errorf("%s%s", s.out.String(), s.err.String())
	}
}

// The doctor tells what the project's file is to a run, and goes on when a setting or a
// file makes no sense, also as JSON.
func TestDoctorTellsOfSettings(t *testing.T) {
	s := newStage(t)
	verdict := func(name string) check {
		t.Helper()
		var d struct{ Checks []check }
		s.do("doctor", "--runtime", "local", "--json")
		if err := json.Unmarshal(s.out.Bytes(), &d); err != nil {
			t.Fatalf("%v: %s%s", err, s.out.String(), s.err.String())
		}
		i := slices.IndexFunc(d.Checks, func(c check) bool { return c.Name == name })
		if i < 0 || !slices.ContainsFunc(d.Checks, func(c check) bool { return c.Name == "bubblewrap" }) {
			t.Fatalf("no %s, or it did not go on: %+v", name, d.Checks)
		}
		return d.Checks[i]
	}
	state := func(ok bool, detail string) {
		t.Helper()
		if v := verdict("project's file"); v.OK != ok || v.Needed != true || !strings.Contains(v.Detail+v.Problem, detail) || ok != (v.Fix == "") {
			t.Errorf("%+v, want %q", v, detail)
		}
	}
	state(true, "none, or nothing is set in it")
	s.trustFile("fs = ro\n")
	state(true, "not trusted, and it only narrows")
	s.trustFile("allow = a.example.com\n")
	state(false, "is not trusted, and it widens")
	if code := s.do("trust", "--yes"); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}
	state(true, "trusted, and nothing has changed since")
	s.trustFile("allow = b.example.com\n")
	state(false, "is not what was trusted")
	s.trustFile("bogus line\n")
	if v := verdict("project's file"); v.OK || v.Fix != "${EDITOR:-vi} "+filepath.Join(s.project, config.ProjectFile) {
		t.Errorf("%+v", v)
	}
	s.do("trust", "--revoke")
	s.trustFile("")

	if v := verdict("settings"); !v.OK {
		t.Errorf("the positive control failed: %+v", v)
	}
	s.write(s.config, "bogus line\nnode_mirror = https://mirror.example.com/dist\n")
	if v := verdict("settings"); v.OK || !v.Needed || v.Fix != "${EDITOR:-vi} "+s.config || !strings.Contains(v.Problem, "bogus line") {
		t.Errorf("%+v", v)
	}
	if code := s.do("doctor", "--runtime", "local"); code != 1 || !strings.Contains(s.out.String(), "FAIL settings ") || !strings.Contains(s.out.String(), "bubblewrap") {
		t.Errorf("exit %d: %s%s", code, s.out.String(), s.err.String())
	}
	s.write(s.config, "")
	s.env["AISB_NET"] = "much"
	if v := verdict("settings"); v.OK || v.Fix != "unset AISB_NET" {
		t.Errorf("%+v", v)
	}
}

// The report of a run that is stopped says why.
func TestStoppedReport(t *testing.T) {
	s := newStage(t)
	var reason error
	s.engine.Refused = func(_, _ string, err error) error { reason = err; return nil }
	s.trustFile("allow = a.example.com\n")
	if code := s.do("--report", "r.json", "pi"); code != 125 || s.ran != nil || reason == nil || !strings.Contains(reason.Error(), "is not trusted") {
		t.Errorf("exit %d, ran %v, report %v", code, s.ran != nil, reason)
	}
}

func TestConfigJSON(t *testing.T) {
	doc, err := filepath.Abs("../../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	s.write(s.config, "[profile p]\nallow = a.example.com\n")
	s.trustFile("fs = ro\n")
	s.env["AISB_NET"] = "none"
	if code := s.do("config", "--json", "--profile", "p", "--env", "A=b c"); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}
	if err := schema.Documented(doc, "config", s.out.Bytes()); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		`"value": "a.example.com", "from": "profile p (` + s.config + `:2)"`, `"value": "ro", "from": ".ai-sandbox/config:1"`, `"value": "none", "from": "AISB_NET"`,
		`"value": "A=b c", "from": "--env"`, `"value": "podman", "from": "built-in"`, `"key": "gate", "values": []`,
	} {
		flat := strings.Join(strings.Fields(s.out.String()), " ")
		if !strings.Contains(flat, want) {
			t.Errorf("no %s in %s", want, flat)
		}
	}
	if code := s.do("config", "--profile", "p", "--env", "A=b c"); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}
	for line := range strings.Lines(s.out.String()) {
		if len(line) > helpWidth+1 && !strings.Contains(line, s.config) {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	if !strings.Contains(s.out.String(), "env                 \"A=b c\"                     (--env)\n") ||
		!strings.Contains(s.out.String(), "allow               a.example.com\n                      (profile p ("+s.config+":2))\n") {
		t.Error(s.out.String())
	}
}

// However narrow a terminal is, no row on it begins as a line of ours does that the
// file's text has chosen.
func TestTrustFolds(t *testing.T) {
	s := newStage(t)
	script := filepath.Join(s.project, ".ai-sandbox/setup.sh")
	var text strings.Builder
	for n := range 120 { // at each place of a row
		text.WriteString("# " + strings.Repeat(" ", n) + "+ allow = harmless.example\n" + strings.Repeat("x", n) + "- allow = harmless.example\n")
	}
	s.write(script, text.String())
	s.trustFile("setup = .ai-sandbox/setup.sh\nallow = " + strings.Repeat("a.", 60) + "example\n")
	// rows are what a terminal shows of an output.
	rows := func(out string, width int) (rows []string) {
		for line := range strings.Lines(out) {
			for line = strings.TrimRight(line, "\n"); len(line) > width; line = line[width:] {
				rows = append(rows, line[:width])
			}
			rows = append(rows, line)
		}
		return rows
	}
	shown := func(what, out, indent string, width int) {
		t.Helper()
		allows := 0
		for _, row := range rows(out, width) {
			if strings.HasPrefix(row, indent+"+ allow") {
				allows++
			}
			for _, begins := range []string{"+ allow = harm", "- allow = harm"} {
				if strings.HasPrefix(strings.TrimSpace(row), begins) {
					t.Errorf("%s: a row begins %q", what, row)
				}
			}
		}
		if allows != 1 {
			t.Errorf("%s: %d rows show what is allowed", what, allows)
		}
	}
	if code := s.do("--print-policy"); code == 0 {
		t.Fatal("it is obeyed")
	}
	if !strings.Contains(s.err.String(), "\n  + allow = a.a.") {
		t.Errorf("a run says %s", s.err.String())
	}
	shown("a run", s.err.String(), "  ", 80)
	for _, width := range []uint16{33, 80, 0} {
		person, program := terminal(t)
		if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: 24}); err != nil {
			t.Fatal(err)
		}
		_ = person
		var out bytes.Buffer
		if code := Main(context.Background(), []string{"trust", "--yes"}, s.env, Streams{In: program, Out: &out, Err: &s.err}, s.engine); code != 0 {
			t.Fatalf("exit %d: %s", code, s.err.String())
		}
		if width == 0 {
			width = 80
		}
		shown(fmt.Sprint("trust at ", width), out.String(), "", int(width))
		if code := s.do("trust", "--revoke"); code != 0 {
			t.Fatal(s.err.String())
		}
	}
	for width := range 100 {
		parts := folded("+ "+strings.Repeat("ab", 50), width)
		all := parts[0]
		for _, p := range parts[1:] {
			rest, ok := strings.CutPrefix(p, "| ")
			if all += rest; !ok || len(p) > max(width, 3) {
				t.Errorf("at %d: %q", width, p)
			}
		}
		if all != "+ "+strings.Repeat("ab", 50) {
			t.Errorf("at %d: %q", width, all)
		}
	}
}

// What was trusted in a project can be taken back when the project is gone.
func TestRevokeWhatIsGone(t *testing.T) {
	s := newStage(t)
	s.trustFile("net = none\n")
	if code := s.do("trust", "--yes"); code != 0 {
		t.Fatal(s.err.String())
	}
	other := t.TempDir()
	if err := os.Rename(s.project, filepath.Join(other, "moved")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(other)
	s.err.Reset()
	if code := s.do("trust", s.project, "--revoke"); code != 0 || !strings.Contains(s.err.String(), "nothing is trusted here any more") {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
	if list, err := filepath.Glob(filepath.Join(s.env["XDG_STATE_HOME"], "ai-sandbox/trust/*.json")); err != nil || len(list) != 0 {
		t.Errorf("left: %q, %v", list, err)
	}
	if code := s.do("trust", filepath.Join(other, "missing")); code != 1 {
		t.Errorf("to trust what is not there: exit %d", code)
	}
}
