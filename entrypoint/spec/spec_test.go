package spec

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func good() Spec {
	return Spec{
		Version: Version, Session: "s", Isolation: IsolationContainer, Command: []string{"sh", "-c", "\xff"}, Workdir: "/p",
		Env: []string{"A=1\n2", "B=\xfe", "C="}, UID: 1000, GID: 1000, TTY: true,
		Firewall: Firewall{Mode: ModeGated, GateAddr: "169.254.77.1", GatePort: 3128},
		Binds:    []Bind{{Target: "/p", Dev: 1, Ino: 1 << 63}},
		Mounts:   []string{"/p", "/tmp", "/ro"}, ReadOnly: []string{"/ro"}, Tmpfs: []string{"/tmp"},
	}
}

// jail is a good one of the other isolation.
func jail() Spec {
	s := good()
	s.Isolation, s.PTY, s.Cols, s.Rows, s.Groups = IsolationProcess, true, 80, 24, true
	s.Firewall = Firewall{Mode: ModeUnix}
	s.Relay = &Relay{Port: 3128, Socket: "/ro/gate.sock"}
	s.Outside = map[string]uint64{"cgroup": 1, "ipc": 2, "mnt": 3, "net": 4, "pid": 5, "user": 6, "uts": 7}
	return s
}

func exec() Exec {
	return Exec{ID: 7, Command: []string{"a", "\xff"}, Env: []string{"A=\xfe"}, Workdir: "/p", TTY: true, Cols: 1, Rows: 2}
}

func TestFrames(t *testing.T) {
	s, j, e := good(), jail(), exec()
	var b bytes.Buffer
	frames := []ToGuest{{Spec: &s}, {Spec: &j}, {Go: true}, {Signal: 2}, {Exec: &e},
		{Resize: &Resize{Exec: 7, Cols: 80, Rows: 24}}, {SignalExec: &SignalExec{Exec: 7, Signal: 2}}}
	for _, f := range frames {
		if err := WriteFrame(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range frames {
		var got ToGuest
		if err := ReadFrame(&b, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if err := got.Check(); err != nil {
			t.Errorf("%+v: %v", got, err)
		}
	}
	if err := ReadFrame(&b, &ToGuest{}); err != io.EOF { //nolint:errorlint // the contract is io.EOF itself
		t.Error(err)
	}
}

func frame(body string) io.Reader {
	return strings.NewReader(string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body)
}

func TestReadFrameIsStrict(t *testing.T) {
	for _, body := range []string{
		``, `null1`, `[]`, `{"go":1}`, `{"stop":true}`, `{"go":true}{}`, `{"go":true} x`,
		`{"spec":{"version":1,"new":2}}`, `{"spec":{"firewall":{"open":true}}}`,
		`{"spec":{"binds":[{"target":"/","mode":1}]}}`, `{"exec":{"id":1,"user":0}}`, `{"spec":{"command":["plain text"]}}`,
	} {
		var f ToGuest
		if err := ReadFrame(frame(body), &f); err == nil {
			t.Errorf("%s: %+v", body, f)
		}
	}
	// The positive control of the nested ones.
	var f ToGuest
	if err := ReadFrame(frame(`{"spec":{"version":1,"binds":[{"target":"/"}],"command":["c2g="]}} `), &f); err != nil {
		t.Error(err)
	} else if !reflect.DeepEqual(f.Spec.Command, []string{"sh"}) {
		t.Errorf("%+v", f.Spec)
	}
}

func TestReadFrameBounds(t *testing.T) {
	for _, size := range []uint32{0, MaxFrame + 1, 1<<32 - 1} {
		r := bytes.NewReader(binary.BigEndian.AppendUint32(nil, size))
		if err := ReadFrame(r, &ToGuest{}); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%d: %v", size, err)
		}
	}
	for _, cut := range []string{"\x00", "\x00\x00\x00\x09", "\x00\x00\x00\x09{"} {
		if err := ReadFrame(strings.NewReader(cut), &ToGuest{}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", cut, err)
		}
	}
	s := good()
	s.Env = []string{"A=" + strings.Repeat("x", MaxFrame)}
	if err := WriteFrame(io.Discard, ToGuest{Spec: &s}); err == nil {
		t.Error("a frame too long was written")
	}
}

func FuzzReadFrame(f *testing.F) {
	var b bytes.Buffer
	s := good()
	if err := WriteFrame(&b, ToGuest{Spec: &s}); err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Clone(b.Bytes()))
	b.Reset()
	e := exec()
	if err := WriteFrame(&b, ToGuest{Exec: &e}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		var got ToGuest
		if ReadFrame(bytes.NewReader(data), &got) != nil {
			return
		}
		// None of these may panic, whatever came.
		_ = got.Check()
		if got.Spec != nil {
			_ = Validate(*got.Spec)
		}
		if got.Exec != nil {
			_ = ValidateExec(*got.Exec)
		}
		got.Spec, got.Exec = cmp.Or(got.Spec, &Spec{}), cmp.Or(got.Exec, &Exec{})
		var again bytes.Buffer
		var back ToGuest
		if err := WriteFrame(&again, got); err != nil {
			t.Fatal(err)
		}
		if err := ReadFrame(&again, &back); err != nil || !reflect.DeepEqual(got.Spec.Env, back.Spec.Env) || !reflect.DeepEqual(got.Exec.Command, back.Exec.Command) {
			t.Errorf("%v: %+v, %+v", err, got, back)
		}
	})
}

func TestCheckFrame(t *testing.T) {
	for _, f := range []ToGuest{
		{}, {Go: true, Signal: 2}, {Signal: -9}, {Signal: 65}, {SignalExec: &SignalExec{Exec: 1}},
		{SignalExec: &SignalExec{Exec: 1, Signal: -1}}, {Exec: &Exec{}, Resize: &Resize{}},
	} {
		if f.Check() == nil {
			t.Errorf("%+v passes", f)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"as it is":  func(*Spec) {},
		"none":      func(s *Spec) { s.Firewall = Firewall{Mode: ModeNone} },
		"unix":      func(s *Spec) { s.Firewall, s.Relay = Firewall{Mode: ModeUnix}, jail().Relay },
		"published": func(s *Spec) { s.Firewall.Published = []uint16{3000, 5173} },
		"published, unix": func(s *Spec) {
			s.Firewall, s.Relay = Firewall{Mode: ModeUnix}, jail().Relay
			s.Publish, s.Mounts = &Publish{Ports: []uint16{3000}, Hello: "x"}, append(s.Mounts, Dir, "/run/aisb-gate")
		},
		"hold":  func(s *Spec) { s.Hold, s.Command, s.TTY = true, nil, false },
		"jail":  func(s *Spec) { *s = jail() },
		"pipes": func(s *Spec) { *s = jail(); s.TTY, s.PTY, s.Cols, s.Rows = false, false, 0, 0 },
		"jail, none": func(s *Spec) {
			*s = jail()
			s.Firewall, s.Relay = Firewall{Mode: ModeNone}, nil
		},
		"jail, host": func(s *Spec) {
			*s = jail()
			s.Firewall, s.Relay = Firewall{Mode: ModeHost}, nil
		},
	} {
		s := good()
		change(&s)
		if err := Validate(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for want, change := range map[string]func(*Spec){
		"version 4":                    func(s *Spec) { s.Version = 4 },
		"no session":                   func(s *Spec) { s.Session = "" },
		"unknown isolation \"\"":       func(s *Spec) { s.Isolation = "" },
		"no command":                   func(s *Spec) { s.Command = nil },
		"argument 1":                   func(s *Spec) { s.Command[1] = "a\x00b" },
		"neither command nor terminal": func(s *Spec) { s.Hold, s.TTY = true, false },
		"element 0 of the environment": func(s *Spec) { s.Env[0] = "*" },
		"element 1 of the environment": func(s *Spec) { s.Env[1] = "=x" },
		`element 2 of the environment ("C") holds a NUL`: func(s *Spec) { s.Env[2] = "C=\x00" },
		"uid 0":                         func(s *Spec) { s.UID = 0 },
		"gid 0":                         func(s *Spec) { s.GID = 0 },
		"workdir":                       func(s *Spec) { s.Workdir = "p" },
		"only there":                    func(s *Spec) { s.PTY = true },
		"a size without":                func(s *Spec) { s.Cols = 80 },
		"mode \"open\"":                 func(s *Spec) { s.Firewall.Mode = "open" },
		"\"8.8.8.8\"":                   func(s *Spec) { s.Firewall.GateAddr = "8.8.8.8" },
		"\"fe80::1\"":                   func(s *Spec) { s.Firewall.GateAddr = "fe80::1" },
		"port 3000 is published twice":  func(s *Spec) { s.Firewall.Published = []uint16{3000, 3000} },
		"port 0 is published":           func(s *Spec) { s.Firewall.Published = []uint16{0} },
		"mode none lets nothing in":     func(s *Spec) { s.Firewall = Firewall{Mode: ModeNone, Published: []uint16{1}} },
		"the socket is for mode unix":   func(s *Spec) { s.Publish = &Publish{Ports: []uint16{1}, Hello: "x"} },
		"publish: no ports":             func(s *Spec) { *s = published(); s.Publish.Ports = nil },
		"publish: no hello":             func(s *Spec) { *s = published(); s.Publish.Hello = "" },
		"port 3128 is the way":          func(s *Spec) { *s = published(); s.Publish.Ports = []uint16{3128} },
		"/run/aisb/publish is not":      func(s *Spec) { *s = published(); s.Mounts = s.Mounts[:len(s.Mounts)-1] },
		"no gate port":                  func(s *Spec) { s.Firewall.GatePort = 0 },
		"mode none has no gate":         func(s *Spec) { s.Firewall.Mode = ModeNone },
		"no mode host with isolation":   func(s *Spec) { s.Firewall = Firewall{Mode: ModeHost} },
		"a relay goes with mode unix":   func(s *Spec) { s.Relay = jail().Relay },
		"mount: \"/a/../b\"":            func(s *Spec) { s.Mounts = append(s.Mounts, "/a/../b") },
		"mount: \"/\"":                  func(s *Spec) { s.Mounts = append(s.Mounts, "/") },
		"not text":                      func(s *Spec) { s.Mounts = append(s.Mounts, "/\xff") },
		"mount \"/tmp\" is there twice": func(s *Spec) { s.Mounts = append(s.Mounts, "/tmp") },
		"bind \"/q\" is not among":      func(s *Spec) { s.Binds[0].Target = "/q" },
		"bind \"/p\" is there twice":    func(s *Spec) { s.Binds = append(s.Binds, s.Binds[0]) },
		"no inode":                      func(s *Spec) { s.Binds[0].Ino = 0 },
		"target \"/q\" is not among":    func(s *Spec) { s.ReadOnly[0] = "/q" },
		"target \"/ro\" is there twice": func(s *Spec) { s.ReadOnly = append(s.ReadOnly, "/ro") },
		"tmpfs \"/q\" is not among":     func(s *Spec) { s.Tmpfs[0] = "/q" },
		"are for a jail only":           func(s *Spec) { s.Groups = true },
	} {
		refusedBy(t, want, good(), change)
	}
	for want, change := range map[string]func(*Spec){
		"only there":                   func(s *Spec) { s.PTY = false },
		"no mode gated with isolation": func(s *Spec) { s.Firewall = good().Firewall },
		"a relay goes with mode unix":  func(s *Spec) { s.Relay = nil },
		"relay: no port":               func(s *Spec) { s.Relay.Port = 0 },
		"relay: \"x\"":                 func(s *Spec) { s.Relay.Socket = "x" },
		"longer than 107 bytes":        func(s *Spec) { s.Relay.Socket = "/ro/" + strings.Repeat("x", 104) },
		"below no mount":               func(s *Spec) { s.Relay.Socket = "/rogue/x" },
		"no user namespace":            func(s *Spec) { delete(s.Outside, "user") },
		"unknown namespace \"time\"":   func(s *Spec) { s.Outside["time"] = 1 },
	} {
		refusedBy(t, want, jail(), change)
	}
}

func refusedBy(t *testing.T, want string, s Spec, change func(*Spec)) {
	t.Helper()
	change(&s)
	if err := Validate(s); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("want %q, got %v", want, err)
	}
}

func TestValidateExec(t *testing.T) {
	if err := ValidateExec(exec()); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Exec){
		"id 0 is not above 0": func(e *Exec) { e.ID = 0 },
		"id -1":               func(e *Exec) { e.ID = -1 },
		"no command":          func(e *Exec) { e.Command = nil },
		"argument 1":          func(e *Exec) { e.Command[1] = "\x00" },
		"element 0":           func(e *Exec) { e.Env[0] = "A" },
		"workdir":             func(e *Exec) { e.Workdir = "/p/../.." },
		"a size without":      func(e *Exec) { e.TTY = false },
	} {
		e := exec()
		change(&e)
		if err := ValidateExec(e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestValidateTellsAllAndNoValue(t *testing.T) {
	s := good()
	s.Version, s.Workdir, s.UID = 9, "", 0
	s.Env = []string{"KEY=canary\x00", "canary"}
	err := Validate(s)
	if err == nil || strings.Count(err.Error(), "\n") != 4 {
		t.Fatalf("not five problems: %v", err)
	}
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("a value is told: %v", err)
	}
}

// published is a jail with a published port.
func published() Spec {
	s := jail()
	s.Publish, s.Mounts = &Publish{Ports: []uint16{3000}, Hello: "x"}, append(s.Mounts, Dir)
	return s
}

func TestCalls(t *testing.T) {
	c, r := Call{ID: 1 << 31, Port: 65535}, Reply{ID: 7, Errno: 111}
	if got, err := ParseCall(c.Bytes()); err != nil || got != c {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseReply(r.Bytes()); err != nil || got != r {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range PublishMessage {
		_, err1 := ParseCall(make([]byte, n))
		_, err2 := ParseReply(make([]byte, n))
		if (err1 == nil) != (n == len(c.Bytes())) || (err2 == nil) != (n == len(r.Bytes())) {
			t.Errorf("%d bytes: %v, %v", n, err1, err2)
		}
	}
}
