//go:build e2e

// Package mounttest are the tests of what is mounted, which are the same on both
// runtimes: tests/e2e and tests/jail call each of them by the same name.
package mounttest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A Result is one ended ai-sandbox.
type Result struct {
	Code     int
	Out, Err string
}

// A Box is a project and the way ai-sandbox is started in it.
type Box struct {
	T *testing.T
	// Run starts ai-sandbox in dir.
	Run func(dir string, args ...string) Result
	Dir string
	// Env are variables for it besides the usual ones.
	Env []string
}

// A Stage is what the tests stand on.
type Stage struct {
	New func(t *testing.T) *Box
	// Home is the home of the user, in the eyes of ai-sandbox.
	Home string
	// Tree is a directory of the user's with a file f, and a directory sub where
	// the host has mounted another one, with a file s.
	Tree  string
	Local bool
	// Between runs ai-sandbox and, when everything is decided and nothing
	// mounted yet, f.
	Between func(b *Box, f func(), args ...string) Result
}

func (b *Box) ok(args ...string) string {
	b.T.Helper()
	r := b.Run(b.Dir, args...)
	if r.Code != 0 {
		b.T.Fatalf("ai-sandbox %q: %d\n%s\n%s", args, r.Code, r.Out, r.Err)
	}
	return r.Out
}

// sh runs a script without a network, with flags before it.
func (b *Box) sh(script string, flags ...string) string {
	b.T.Helper()
	return b.ok(append(append([]string{"--net", "none"}, flags...), "--", "sh", "-c", script)...)
}

// refused is a run that must not start, for a reason.
func (b *Box) refused(want string, args ...string) {
	b.T.Helper()
	r := b.Run(b.Dir, append(append([]string{"--net", "none"}, args...), "--", "echo", "RAN")...)
	if r.Code != 125 || strings.Contains(r.Out, "RAN") || !regexp.MustCompile(want).MatchString(r.Err) {
		b.T.Errorf("ai-sandbox %q: want %s\n%d %s\n%s", args, want, r.Code, r.Out, r.Err)
	}
}

// tmp is a directory of this test's own that is not below /tmp.
func (b *Box) tmp() string {
	b.T.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(b.Dir), "other-")
	b.must(err)
	b.T.Cleanup(func() { _ = os.RemoveAll(dir) }) // its parent is removed too
	return dir
}

func (b *Box) must(err error) {
	b.T.Helper()
	if err != nil {
		b.T.Fatal(err)
	}
}

func (b *Box) write(path, text string) {
	b.T.Helper()
	b.must(os.MkdirAll(filepath.Dir(path), 0o700))
	b.must(os.WriteFile(path, []byte(text), 0o600))
}

func (b *Box) read(path string) string {
	b.T.Helper()
	text, err := os.ReadFile(path)
	b.must(err)
	return string(text)
}

func (b *Box) same(what, got, want string) {
	b.T.Helper()
	if got != want {
		b.T.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// Mirrored: a project is at its own path, symlinked parents resolved; what is
// written lands on the host; and the sandbox's own places are still there.
func Mirrored(t *testing.T, s Stage) {
	b := s.New(t)
	b.sh("echo marker >$HOME/marker")
	script := "pwd; pwd -P; echo hi >here; cat /home/sandbox/marker; test -d /home/sandbox && echo home; test -w /home/sandbox && echo writable"
	if !s.Local { // a jail has no image
		script += "; test -d /project && ls -A /project; echo image"
	}
	want := b.Dir + "\n" + b.Dir + "\nmarker\nhome\nwritable\n"
	if !s.Local {
		want += "image\n"
	}
	b.same("mirrored", b.sh(script), want)
	b.same("on the host", b.read(filepath.Join(b.Dir, "here")), "hi\n")

	// A symlinked parent leads to the real one, in both directions.
	outside := b.tmp()
	other, err := os.MkdirTemp("/tmp", "aisb-mounts-")
	b.must(err)
	defer os.RemoveAll(other)
	b.must(os.Symlink(b.Dir, filepath.Join(outside, "link")))
	r := b.Run(filepath.Join(outside, "link"), "--net", "none", "--", "sh", "-c", "pwd -P; cat here")
	b.same("through a link", r.Out, b.Dir+"\nhi\n")
	b.must(os.Mkdir(filepath.Join(other, "p"), 0o700))
	b.must(os.Symlink(other, filepath.Join(outside, "into-tmp")))
	r = b.Run(filepath.Join(outside, "into-tmp", "p"), "--net", "none", "--", "sh", "-c", "pwd -P; echo hi >here")
	b.same("a link into /tmp", r.Out, "/project\n")
	b.same("on the host", b.read(filepath.Join(other, "p", "here")), "hi\n")
	if !strings.Contains(r.Err, "ai-sandbox: the project is mounted at /project, as its own path would hide /tmp of the sandbox") {
		t.Errorf("a real run says nothing of it: %s", r.Err)
	}
	for _, look := range []string{"--print-policy", "--dry-run"} {
		r = b.Run(filepath.Join(other, "p"), look, "--net", "none", "--", "true")
		if !strings.Contains(strings.Join(strings.Fields(r.Out), " "), "note: mounted at /project, as its own path would hide /tmp of the sandbox") {
			t.Errorf("%s says nothing of it: %s", look, r.Out)
		}
	}
}

// Workdir: another place for the project, and none.
func Workdir(t *testing.T, s Stage) {
	b := s.New(t)
	b.same("named", b.sh("pwd; echo hi >here; ls -d '"+b.Dir+"' 2>/dev/null; true", "--workdir", "/work/a b"), "/work/a b\n")
	b.same("on the host", b.read(filepath.Join(b.Dir, "here")), "hi\n")
	b.same("auto", b.sh("pwd", "--workdir", "auto"), b.Dir+"\n")
	b.same("/project", b.sh("pwd; cat here", "--workdir", "/project"), "/project\nhi\n")
	for place, want := range map[string]string{
		"/usr/local/bin": "would hide /usr", "/home/sandbox/x": "would hide /home/sandbox", "/tmp/x": "would hide /tmp", "/libexec": "would hide /libexec",
		"/": "would hide /", "/work/": "is not clean", "/work/../usr": "is not clean", "work": "is not absolute", "/a:b": "holds a colon",
	} {
		b.refused(want, "--workdir", place)
	}
	dir := b.Dir
	for _, d := range []string{dir, s.Home, "/"} { // where no project could be, either
		b.Dir = d
		b.same("no_cwd in "+d, b.sh("pwd; ls -A; echo x >y && cat y; ls -d '"+dir+"' 2>/dev/null; true", "--no-cwd"), "/project\nx\n")
	}
	b.Dir = dir
	b.same("it ends with the run", b.sh("ls -A", "--no-cwd"), "")
	b.same("--disk bounds it", b.sh("head -c 40m /dev/zero 2>/dev/null >x; stat -c %s x", "--no-cwd", "--disk", "30m"), "31457280\n")
	b.refused("drop one of them", "--no-cwd", "--workdir", "/work")
	if out := b.ok("--no-cwd", "--print-policy", "--net", "none", "--", "true"); strings.Contains(out, dir) || !strings.Contains(strings.Join(strings.Fields(out), " "), "no project is mounted") {
		t.Errorf("%s", out)
	}
}

// OddPaths are mounted exactly or refused.
func OddPaths(t *testing.T, s Stage) {
	b := s.New(t)
	for _, name := range []string{
		"a b", " lead", "trail ", "a,b", "a,ro", "a'b", `a"b`, "a%20b", "a%b", "a\nb", "-x", "--", "a\\b", `a\040b`, "a\tb", "ü", "a;b", "$HOME", "a=b", "*", "~", "#x", "a|b",
		"src=x,dst=y", "<session>", "a\x1b[31mb", "\u202ex",
	} {
		dir := filepath.Join(b.Dir, name)
		b.write(filepath.Join(dir, "file"), name)
		r := b.Run(dir, "--net", "none", "--", "sh", "-c", `printf '%s' "$PWD"; pwd -P >where; echo; cat file; echo hi >here`)
		if r.Code != 0 || r.Out != dir+"\n"+name || b.read(filepath.Join(dir, "where")) != dir+"\n" || b.read(filepath.Join(dir, "here")) != "hi\n" {
			t.Errorf("project %q: %d %q %s", name, r.Code, r.Out, r.Err)
		}
		if strings.ContainsAny(r.Err, "\x1b\u202e") {
			t.Errorf("%q: its escapes reach the terminal: %q", name, r.Err)
		}
		b.same("mount "+name, b.ok("--net", "none", "--workdir", "/elsewhere", "--mount", dir, "--", "sh", "-c",
			`cat "$0/file"; (: >"$0/new") 2>/dev/null && echo WRITTEN; true`, dir), name)
	}
	for name, want := range map[string]string{"a:b": `holds a ":"`, "a:ro": `holds a ":"`, "\xff": "is not valid UTF-8"} {
		dir := filepath.Join(b.Dir, "odd"+name)
		b.must(os.Mkdir(dir, 0o700))
		r := b.Run(dir, "--net", "none", "--", "echo", "RAN")
		if r.Code != 125 || !strings.Contains(r.Err, want) {
			t.Errorf("project %q: %d %s", name, r.Code, r.Err)
		}
	}
}

// Mounts: what --mount shows, and how.
func Mounts(t *testing.T, s Stage) {
	b := s.New(t)
	src := b.tmp()
	b.write(filepath.Join(src, "f"), "file\n")
	b.write(filepath.Join(src, "deep", "g"), "deep\n")
	try := `cat "$0/f"; (echo x >"$0/new") 2>/dev/null && echo written; true`
	at := func(flag, place string) string {
		b.T.Helper()
		_ = os.Remove(filepath.Join(src, "new")) // of an earlier one
		return b.ok("--net", "none", "--mount", flag, "--", "sh", "-c", try, place)
	}
	b.same("as it is", at(src, src), "file\n")
	b.same("ro", at(src+":ro", src), "file\n")
	b.same("rw", at(src+":rw", src), "file\nwritten\n")
	b.same("another place", at(src+":/mnt/x", "/mnt/x"), "file\n")
	b.same("another place, rw", at(src+":/mnt/x:rw", "/mnt/x"), "file\nwritten\n")
	b.same("in the home", at(src+":/home/sandbox/x:rw", "/home/sandbox/x"), "file\nwritten\n")
	b.same("deep in the home", at(src+":/home/sandbox/.config/x:rw", "/home/sandbox/.config/x"), "file\nwritten\n")
	b.same("the way there is the agent's", b.sh("touch ~/.config/mine && echo mine", "--mount", src+":/home/sandbox/.config/x"), "mine\n")
	b.same("a file", b.sh("cat /mnt/f; (echo x >/mnt/f) 2>/dev/null || echo no", "--mount", filepath.Join(src, "f")+":/mnt/f"), "file\nno\n")
	b.same("a file in the home", b.sh("cat ~/.gitconfig", "--mount", filepath.Join(src, "f")+":/home/sandbox/.gitconfig"), "file\n")

	// A link that an earlier run planted does not lead a link of ours into another
	// mount, where the host's files would make way for it.
	victim := b.tmp()
	b.write(filepath.Join(victim, "x", "precious"), "new")
	b.write(filepath.Join(victim, "x.own", "deep", "precious"), "old")
	b.sh("ln -s /mnt/victim ~/.planted")
	planted := []string{"--net", "none", "--mount", victim + ":/mnt/victim:rw", "--mount", src + ":/home/sandbox/.planted/x", "--", "sh", "-c", "cd /mnt/victim && cat x/precious x.own/deep/precious && ls"}
	if r := b.Run(b.Dir, planted...); r.Code != 0 || r.Out != "newoldx\nx.own\n" || !strings.Contains(r.Err, "~/.planted in this sandbox can't be read or replaced") {
		t.Errorf("a planted link: %d %s\n%s", r.Code, r.Out, r.Err)
	}
	rel, err := filepath.Rel(b.Dir, src)
	b.must(err)
	b.same("relative", at(rel, src), "file\n")
	b.must(os.Symlink(src, filepath.Join(b.Dir, "link")))
	b.refused("is reached by a symbolic link in", "--mount", "link:/mnt/x")
	link := filepath.Join(b.tmp(), "link")
	b.must(os.Symlink(src, link))
	b.same("a link", at(link+":/mnt/x", "/mnt/x"), "file\n")

	// The project's parent, and a place in the project.
	around := b.tmp() // not the one of all tests' projects, where sockets come and go
	b.write(filepath.Join(around, "other", "f"), "file\n")
	inner := filepath.Join(around, "project")
	b.must(os.Mkdir(inner, 0o700))
	r := b.Run(inner, "--net", "none", "--mount", around, "--", "sh", "-c", "cat ../other/f; echo hi >here; (echo x >../new) 2>/dev/null || echo no")
	if r.Code != 0 || r.Out != "file\nno\n" {
		t.Errorf("around the project: %d %q\n%s", r.Code, r.Out, r.Err)
	}
	b.same("the project in it", b.read(filepath.Join(inner, "here")), "hi\n")
	b.must(os.Mkdir(filepath.Join(b.Dir, "data"), 0o700))
	b.same("in the project", b.sh("cat data/f", "--mount", src+":"+b.Dir+"/data"), "file\n")
	b.same("read-only project with a place to write", b.sh("(echo x >x) 2>/dev/null || echo no; echo x >data/x && echo yes", "--fs", "ro", "--mount", "data:rw"), "no\nyes\n")
	b.refused("there is no .*/missing on this machine", "--mount", src+":"+b.Dir+"/missing")
	b.refused("is a symlink", "--mount", src+":"+b.Dir+"/link")
	b.refused("not both directories or both files", "--mount", filepath.Join(src, "f")+":"+b.Dir+"/data")
	if _, err := os.Lstat(filepath.Join(b.Dir, "missing")); err == nil {
		t.Error("a mount point was made in the project")
	}
	if out := b.ok("--print-policy", "--net", "none", "--mount", src+":/mnt/x", "--", "true"); !regexp.MustCompile(`(?m)^  ro bind +/mnt/x\s+<-\s+` + regexp.QuoteMeta(src)).MatchString(out) {
		t.Errorf("%s", out)
	}
}

// Refused: what may not be mounted.
func Refused(t *testing.T, s Stage) {
	b := s.New(t)
	dir := b.tmp()
	b.write(filepath.Join(dir, "keys", "id"), "key")
	keys := filepath.Join(dir, "keys")
	sock := filepath.Join(dir, "agent", "sock")
	b.must(os.Mkdir(filepath.Dir(sock), 0o700))
	listen(t, sock)
	svc := b.tmp()
	listen(t, filepath.Join(svc, "docker.sock"))
	for _, c := range [][2]string{
		{"/", "is the whole machine"}, {s.Home, "is your home"}, {"~", "is your home"}, {"~/", "is your home"},
		{filepath.Dir(s.Home), "holds your home"}, {"/etc", "directory of the system"}, {"/proc", "directory of the system"},
		{sock, "is a unix socket"}, {svc, "would show a socket of a container service"},
		{filepath.Join(dir, "nothing"), "does not exist"}, {"", "has no source|has an empty value"}, {"/dev/null", "neither a directory nor a file"},
		{keys + "::ro", "is not absolute"}, {keys + ":x", "is not absolute"}, {keys + ":/a:b", "third part"}, {keys + ":/a:rw:ro", "third part"},
		{keys + ":/mnt/../usr", "not clean"}, {keys + ":/usr/lib", "would hide /usr"}, {keys + ":/home/sandbox", "would hide /home/sandbox"},
		{keys + ":/run/aisb", "would hide /run"}, {keys + ":/", "would hide /"}, {keys + ":/tmp/x", "would hide /tmp"}, {keys + ":" + b.Dir, "something else is mounted already"},
	} {
		b.refused(c[1], "--mount="+c[0])
	}
	b.refused("something else is mounted already", "--mount", keys+":/mnt/x", "--mount", b.tmp()+":/mnt/x")
	// The positive control.
	b.same("control", b.sh("cat "+dir+"/keys/id", "--mount", dir+"/keys"), "key")
	// What the environment names, and only then: otherwise it is masked.
	agent := filepath.Dir(sock)
	b.sh("true", "--mount", agent)
	for name, c := range map[string][2]string{
		"SSH_AUTH_SOCK": {sock, "would show the socket of an agent that holds keys"}, "DOCKER_HOST": {"unix://" + sock, "would show a container service's socket"},
		"DBUS_SESSION_BUS_ADDRESS": {"unix:path=" + sock, "would show a message bus's socket"},
	} {
		b.Env = []string{name + "=" + c[0]}
		b.refused(c[1], "--mount", agent)
	}
	b.Env = nil
	theirs := "/var/log"
	if os.Geteuid() == 0 {
		theirs = filepath.Join(dir, "theirs")
		b.must(os.Mkdir(theirs, 0o755))
		b.must(os.Chown(theirs, 1, 1))
	}
	b.refused("belongs to another user", "--mount", theirs)
	state := filepath.Join(dir, "state", "ai-sandbox")
	b.write(filepath.Join(state, "homes", "f"), "")
	b.Env = []string{"XDG_STATE_HOME=" + filepath.Dir(state)}
	for _, d := range []string{state, filepath.Dir(state), filepath.Join(state, "homes")} {
		b.refused("ai-sandbox's state .* lie in one another", "--mount", d)
	}
	b.Env = nil
	r := b.Run(svc, "--net", "none", "--", "echo", "RAN")
	if r.Code != 125 || !strings.Contains(r.Err, "would show a socket of a container service") {
		t.Errorf("a project with a container service's socket: %d %s", r.Code, r.Err)
	}
}

// listen is a real listener, which counts who comes.
func listen(t *testing.T, path string) *atomic.Int32 {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // the end of the test
	n := new(atomic.Int32)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			_, _ = c.Write([]byte("REACHED")) // it may be gone
			_ = c.Close()                     // likewise
		}
	}()
	return n
}

// dial is a program that tries sockets, for the python3 that both runtimes have.
const dial = `python3 - "$@" <<'PY'
import socket, sys
for p in sys.argv[1:]:
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    try:
        s.connect(p); print(s.recv(99).decode())
    except OSError as e:
        print(e.strerror)
PY
`

// Sockets of the host's can't be reached through any mount.
func Sockets(t *testing.T, s Stage) {
	b := s.New(t)
	src, agents := b.tmp(), b.tmp()
	deep := filepath.Join(b.Dir, "a", "b c")
	b.must(os.MkdirAll(deep, 0o700))
	relative := filepath.Join(b.Dir, "rel.sock")
	paths := []string{filepath.Join(b.Dir, "s.sock"), filepath.Join(deep, "s.sock"), filepath.Join(src, "s.sock")}
	var counts []*atomic.Int32
	for _, p := range append(paths, filepath.Join(agents, "s.sock")) {
		counts = append(counts, listen(t, p))
	}
	// Deeper than a start looks by itself, and not where it was bound.
	for i := range 100 {
		b.must(os.MkdirAll(filepath.Join(b.Dir, "many", strconv.Itoa(i)), 0o700))
	}
	moved := filepath.Join(b.Dir, "many", "99", "moved.sock")
	elsewhere := filepath.Join(b.tmp(), "s.sock")
	counts = append(counts, listen(t, elsewhere))
	b.must(os.Rename(elsewhere, moved))
	// By a name that only its own working directory explains.
	cmd := exec.Command("python3", "-c", "import socket,sys,time\ns=socket.socket(socket.AF_UNIX)\ns.bind('rel.sock')\ns.listen()\nprint('up',flush=True)\ntime.sleep(600)")
	cmd.Dir = b.Dir
	up, err := cmd.StdoutPipe()
	b.must(err)
	b.must(cmd.Start())
	defer func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // likewise
	}()
	_, err = up.Read(make([]byte, 3))
	b.must(err)
	// A file of one where nobody listens any more: the command may use its name.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(b.Dir, "stale.sock")})
	b.must(err)
	l.SetUnlinkOnClose(false)
	b.must(l.Close())

	flags := []string{"--mount", src, "--agents-dir", agents}
	all := append(append([]string{}, paths...), relative, moved, "/home/sandbox/.agents/s.sock")
	before := tree(t, b.Dir, src, agents)
	args := append(append([]string{"--net", "none"}, flags...), "--", "sh", "-c", dial+`
python3 - <<'PY'
import os, socket, threading
os.unlink("stale.sock")
for p in ("stale.sock", "/tmp/own.sock"):
    s = socket.socket(socket.AF_UNIX); s.bind(p); s.listen()
    c = socket.socket(socket.AF_UNIX); c.connect(p); print("own answers"); s.close()
os.unlink("stale.sock")
PY
for s in "$@"; do rm -f "$s" 2>/dev/null && echo REMOVED; mv "$s" "$s.x" 2>/dev/null && echo MOVED; done; true`, "sh")
	r := b.Run(b.Dir, append(args, all...)...)
	lines := strings.Split(strings.TrimSpace(r.Out), "\n")
	if r.Code != 0 || len(lines) != len(all)+2 || strings.Contains(r.Out, "REACHED") || strings.Contains(r.Out, "REMOVED") || strings.Contains(r.Out, "MOVED") || strings.Count(r.Out, "own answers") != 2 {
		t.Errorf("%d %s\n%s", r.Code, r.Out, r.Err)
	}
	for i, n := range counts {
		if n.Load() != 0 {
			t.Errorf("listener %d was reached %d times", i, n.Load())
		}
	}
	before = strings.ReplaceAll(before, b.Dir+"/stale.sock\n", "")
	b.same("nothing is left on the host", tree(t, b.Dir, src, agents), before)
	out := b.ok(append(append([]string{"--print-policy", "--net", "none"}, flags...), "--", "true")...)
	for _, p := range all {
		if !regexp.MustCompile(`(?m)^  ro bind\s+"?` + regexp.QuoteMeta(p) + `"?\s+<-\s+/dev/null`).MatchString(out) {
			t.Errorf("%s is not named: %s", p, out)
		}
	}
	// The positive control: the listeners answer whoever may reach them.
	for i, p := range append(paths, filepath.Join(agents, "s.sock")) {
		c, err := net.Dial("unix", p)
		b.must(err)
		buf := make([]byte, 16)
		n, err := c.Read(buf)
		b.must(err)
		b.same("control", string(buf[:n]), "REACHED")
		b.must(c.Close())
		if counts[i].Load() != 1 {
			t.Errorf("the control %d does not count", i)
		}
	}
}

// tree lists what is below the directories.
func tree(t *testing.T, dirs ...string) string {
	t.Helper()
	out, err := exec.Command("find", append(dirs, "-printf", "%p\n")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// ReadOnly is read-only: in every way of writing, and below what the host has
// mounted there too.
func ReadOnly(t *testing.T, s Stage) {
	b := s.New(t)
	const script = `for d in "$@"; do cat "$d"/[fs]; python3 - "$d" <<'PY'
import ctypes, mmap, os, sys
d = sys.argv[1]
f = [os.path.join(d, n) for n in ("f", "s") if os.path.exists(os.path.join(d, n))][0]
libc = ctypes.CDLL(None, use_errno=True)
def fd(flags): return os.open(f, flags)
def remount(flags):
    if libc.mount(b"none", d.encode(), None, flags, None): raise OSError(ctypes.get_errno(), "mount")
for what in (
    lambda: fd(os.O_WRONLY), lambda: fd(os.O_RDWR), lambda: fd(os.O_RDONLY | os.O_TRUNC), lambda: os.truncate(f, 0), lambda: os.chmod(f, 0o777), lambda: os.utime(f),
    lambda: os.setxattr(f, "user.x", b"x"), lambda: mmap.mmap(fd(os.O_RDONLY), 0, mmap.MAP_SHARED, mmap.PROT_WRITE), lambda: os.rename(f, f + "x"), lambda: os.unlink(f),
    lambda: os.link(f, f + "l"), lambda: os.symlink("x", d + "/y"), lambda: os.mkdir(d + "/z"), lambda: open("/proc/self/fd/%d" % fd(os.O_RDONLY), "w"), lambda: os.rename(d, d + ".moved"), lambda: os.rmdir(d),
    lambda: remount(0x20), lambda: remount(0x1020), lambda: libc.umount2(d.encode(), 2) and (_ for _ in ()).throw(OSError(ctypes.get_errno(), "umount")),
):
    try:
        what(); print("DONE", what.__code__.co_firstlineno, d)
    except (OSError, ValueError): pass
PY
done`
	var places []string
	for _, d := range []string{"/home/sandbox/.agents", "/mnt/x"} {
		places = append(places, d, d+"/sub")
	}
	args := append([]string{"--net", "none", "--agents-dir", s.Tree, "--mount", s.Tree + ":/mnt/x", "--", "sh", "-c", script, "sh"}, places...)
	before := b.read(filepath.Join(s.Tree, "f")) + b.read(filepath.Join(s.Tree, "sub", "s")) + tree(t, s.Tree)
	r := b.Run(b.Dir, args...)
	want := b.read(filepath.Join(s.Tree, "f")) + b.read(filepath.Join(s.Tree, "sub", "s"))
	if r.Code != 0 || r.Out != want+want {
		t.Errorf("%d %q, want %q\n%s", r.Code, r.Out, want+want, r.Err)
	}
	b.same("the host's files", b.read(filepath.Join(s.Tree, "f"))+b.read(filepath.Join(s.Tree, "sub", "s"))+tree(t, s.Tree), before)
	// The positive control: the same ways, where they are open.
	b.write(filepath.Join(b.Dir, "ways", "f"), "f\n")
	if out := b.sh(strings.Replace(script, `"$@"`, "ways", 1)); strings.Count(out, "DONE") < 8 {
		t.Errorf("the positive control: %s", out)
	}
	// A read-only project with something mounted in it.
	b.Dir = s.Tree
	b.same("a project", b.sh("(: >new) 2>/dev/null && echo WRITTEN; (: >sub/new) 2>/dev/null && echo WRITTEN; cat sub/s", "--fs", "ro", "--workdir", "/work/x", "--no-agents"), b.read(filepath.Join(s.Tree, "sub", "s")))
}

// Agents is the directory of the user's own: read-only, live, and never writable.
func Agents(t *testing.T, s Stage) {
	b := s.New(t)
	agents := b.tmp()
	b.write(filepath.Join(agents, "skills", "one"), "one\n")
	given := []string{"--agents-dir", agents}
	const home = "/home/sandbox/.agents"
	b.same("shown", b.sh("cat ~/.agents/skills/one; cd ~/.agents && pwd -P", given...), "one\n"+home+"\n")
	b.same("it can't be replaced", b.sh("rm -rf ~/.agents 2>/dev/null; mv ~/.agents ~/x 2>/dev/null; ln -sfn /tmp ~/.agents 2>/dev/null; cat ~/.agents/skills/one", given...), "one\n")
	b.same("not shown", b.sh("ls -A ~/.agents 2>/dev/null; true", append(given, "--no-agents")...), "")

	// Live: what the host changes during the run is seen.
	go func() {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(b.Dir, "waits")); err == nil {
				_ = os.WriteFile(filepath.Join(agents, "new"), []byte("live\n"), 0o600) // the script tells
				return
			}
		}
	}()
	b.same("live", b.sh("touch waits; n=0; until test -s ~/.agents/new || test $n = 2000; do sleep 0.05; n=$((n+1)); done; cat ~/.agents/new", given...), "live\n")

	// Elsewhere, and an explicit mount of that place.
	b.same("agents_dest", b.sh("cat /opt-agents/skills/one; ls -d ~/.agents/skills 2>/dev/null; true", append(given, "--agents-dest", "/opt-agents")...), "one\n")
	b.same("agents_dest deep in the home", b.sh("cat ~/.config/agents/skills/one; (: >~/.config/agents/x) 2>/dev/null || echo no", append(given, "--agents-dest", "/home/sandbox/.config/agents")...), "one\nno\n")
	other := b.tmp()
	b.write(filepath.Join(other, "f"), "explicit\n")
	b.same("an explicit mount wins", b.sh("cat ~/.agents/f; ls ~/.agents", append(given, "--mount", other+":"+home)...), "explicit\nf\n")
	b.refused("agents_dest .* would hide /usr", append(given, "--agents-dest", "/usr/x")...)
	b.refused("does not exist", "--agents-dir", filepath.Join(agents, "missing"))
	b.refused("not a directory", "--agents-dir", filepath.Join(agents, "skills", "one"))

	// Nothing lets it be written.
	never := "can be written and is, holds or lies in the agents directory"
	for _, flags := range [][]string{
		{"--mount", agents + ":rw"}, {"--mount", agents + ":/mnt/x:rw"}, {"--mount", agents + "/skills:/mnt/x:rw"}, {"--mount", agents + ":" + home + ":rw"},
	} {
		b.refused(never, append(given, flags...)...)
		b.refused(never, append(append([]string{"--no-agents"}, given...), flags...)...)
	}
	link := filepath.Join(b.tmp(), "link")
	b.must(os.Symlink(agents, link))
	b.refused(never, "--agents-dir", link, "--mount", agents+":/mnt/x:rw")
	b.refused(never, append(given, "--mount", link+":/mnt/x:rw")...)
	b.refused(never, "--agents-dir", link, "--mount", filepath.Dir(link)+":/mnt/x:rw") // the link could be led elsewhere
	b.same("read-only it may", b.sh("cat /mnt/x/skills/one", append(given, "--mount", agents+":/mnt/x")...), "one\n")
	inner := b.Dir
	for _, d := range []string{agents, filepath.Join(agents, "skills")} {
		b.Dir = d
		b.refused(never, given...)
		if out := b.sh("ls", append(given, "--fs", "ro", "--workdir", "/work")...); out == "" {
			t.Errorf("a read-only project in it: %q", out)
		}
	}
	b.must(os.MkdirAll(filepath.Join(inner, "in", "agents"), 0o700))
	b.Dir = inner
	b.refused(never, "--agents-dir", filepath.Join(inner, "in", "agents"))

	// A link that an earlier run planted in the home leads the mount nowhere.
	for _, to := range []string{other, "/oldroot" + other, "../../../.." + other, "/etc", "/project", "nowhere"} {
		b := s.New(t)
		b.sh("ln -s " + to + " ~/.agents")
		mark := tree(t, other)
		r := b.Run(b.Dir, append(append([]string{"--net", "none"}, given...), "--", "sh", "-c", "cat ~/.agents/skills/one; readlink ~/.agents")...)
		if r.Code != 125 || r.Out != "" || !strings.Contains(r.Err, ".agents") {
			t.Errorf("~/.agents -> %s: %d %s\n%s", to, r.Code, r.Out, r.Err)
		}
		b.same("outside", tree(t, other), mark)
	}
	// A link inside it leads where such a link leads inside, and nowhere else.
	secret := filepath.Join(b.tmp(), "secret")
	b.write(secret, "CANARY")
	b.must(os.Symlink(secret, filepath.Join(agents, "out")))
	b.same("a link in it", b.sh("cat ~/.agents/out 2>/dev/null || echo no", given...), "no\n")
}

// AgentsDefault is about ~/.agents itself, so nothing else may run meanwhile.
func AgentsDefault(t *testing.T, s Stage) {
	b := s.New(t)
	dir := filepath.Join(s.Home, ".agents")
	if _, err := os.Lstat(dir); err == nil {
		t.Fatalf("%s is there already", dir)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the home is the tests' own
	clean := func(flags ...string) {
		t.Helper()
		r := b.Run(b.Dir, append(append([]string{"--net", "none"}, flags...), "--", "sh", "-c", "ls -d ~/.agents 2>/dev/null; echo ran")...)
		if r.Code != 0 || strings.Contains(r.Err, "agents") || r.Out != "ran\n" && r.Out != "/home/sandbox/.agents\nran\n" {
			t.Errorf("%d %s\n%s", r.Code, r.Out, r.Err)
		}
	}
	clean()
	b.refused("does not exist", "--agents")
	b.write(filepath.Join(dir, "f"), "mine\n")
	b.same("shown", b.sh("cat ~/.agents/f"), "mine\n")
	b.must(os.Chmod(dir, 0))
	if os.Geteuid() != 0 { // who reads everything
		clean()
		b.refused("permission denied", "--agents")
	}
	b.must(os.Chmod(dir, 0o700))
	b.refused("is, holds or lies in the agents directory", "--mount", dir+":/mnt/x:rw", "--no-agents")
	b.refused("is, holds or lies in the agents directory", "--mount", dir+":/mnt/x:rw", "--agents-dir", b.tmp())
	b.must(os.RemoveAll(dir))
	secrets := filepath.Join(s.Home, ".ssh")
	b.must(os.MkdirAll(secrets, 0o700))
	defer os.RemoveAll(secrets)
	b.must(os.Symlink(secrets, dir))
	b.refused("where credentials are")
	b.must(os.Remove(dir))
	b.must(os.WriteFile(dir, nil, 0o600))
	clean()
}

// Swapped: a source that is another one by the time it is mounted ends the start.
func Swapped(t *testing.T, s Stage) {
	victim := s.New(t).tmp()
	for name, to := range map[string]string{"directory": "", "symlink": victim, "parent": victim} {
		t.Run(name, func(t *testing.T) {
			b := s.New(t)
			b.write(filepath.Join(victim, "secret"), "CANARY")
			b.write(filepath.Join(victim, "sub", "secret"), "CANARY")
			src := filepath.Join(b.tmp(), "a", "sub")
			b.must(os.MkdirAll(src, 0o700))
			args := []string{"--net", "none", "--mount", src + ":/mnt/x:rw", "--", "sh", "-c", "echo ran; cat /mnt/x/secret; echo x >/mnt/x/written"}
			r := s.Between(b, func() {}, args...)
			if r.Code != 0 || r.Out != "ran\n" {
				t.Fatalf("the positive control: %+v", r)
			}
			swapped := src
			if name == "parent" {
				swapped = filepath.Dir(src)
			}
			r = s.Between(b, func() {
				b.must(os.Rename(swapped, swapped+".old"))
				if to == "" {
					b.must(os.Mkdir(swapped, 0o700))
				} else {
					b.must(os.Symlink(to, swapped))
				}
			}, args...)
			if r.Code == 0 || r.Out != "" {
				t.Errorf("it ran with another directory: %+v", r)
			}
			for _, dir := range []string{victim, filepath.Join(victim, "sub")} {
				if _, err := os.Lstat(filepath.Join(dir, "written")); err == nil {
					t.Errorf("it wrote into %s", dir)
				}
			}
		})
	}
}
