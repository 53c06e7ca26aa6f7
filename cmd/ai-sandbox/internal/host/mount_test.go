package host

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/policy"
)

func TestMountProblem(t *testing.T) {
	f := good()
	f.PasswdHome = "/data/dev"
	f.Specials = specials(map[string]string{
		"SSH_AUTH_SOCK": "/srv/ssh/agent.1", "DBUS_SESSION_BUS_ADDRESS": "unix:abstract=x;unix:guid=1,path=/srv/bus/socket", "DOCKER_HOST": "unix:///srv/docker/d.sock",
	}, "/home/dev")
	for path, want := range map[string]string{
		"/": "is the whole machine", "/home/dev": "is your home", "/data/dev": "is your home", "/home": "holds your home", "/data": "holds your home",
		"/home/dev/.config": "settings of every program", "/home/dev/.config/ai-sandbox": "configuration", "/home/dev/.config/ai-sandbox/x": "configuration",
		"/home/dev/.local/state/ai-sandbox/homes/x": "state", "/home/dev/.cache/ai-sandbox": "cache", "/home/dev/.local/share/containers/storage": "podman store",
		"/run/user/1000": "runtime directory", "/run/user/1000/podman": "runtime directory", "/run": "runtime directory", "/srv/ssh": "an agent that holds keys", "/srv": "would show",
		"/srv/bus": "a message bus", "/srv/docker": "a container service", "/etc": "directory of the system", "/etc/ssl": "directory of the system", "/usr": "directory of the system",
		"/srv/a:b": "holds a \":\"", "/mnt/theirs": "another user (uid 1001)", "/mnt/sockets": "a socket of a container service",
		"/mnt/mine": "", "/home/dev/.config/nvim": "", "/home/dev/.ssh": "", "/home/dev/.sshd": "",
	} {
		s := Source{Path: path, Dir: true, Owner: 1000}
		var sockets []string
		switch path {
		case "/mnt/theirs":
			s.Owner = 1001
		case "/mnt/sockets":
			sockets = []string{"/mnt/sockets/a/docker.sock"}
		}
		got := MountProblem(f, "mount", s, false, sockets)
		if (got == "") != (want == "") || !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := MountProblem(f, "mount", Source{Path: "/etc/passwd"}, false, nil); got != "mount /etc/passwd is a file of the system; name one of your own" {
		t.Errorf("a file: %q", got)
	}
	if got := MountProblem(f, "mount", Source{Path: "/home/dev/.ssh/x", Owner: 1000}, true, nil); !strings.Contains(got, "holds credentials") {
		t.Errorf("writable keys: %q", got)
	}
}

func TestSockets(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", strings.Repeat("long", 40), "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, other); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	var want []string
	for _, name := range []string{filepath.Join(other, "through a link"), "relative", filepath.Join(dir, "s")} {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		want = append(want, filepath.Join(dir, filepath.Base(name)))
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: "stale"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	slices.Sort(want)
	if got, err := Sockets(dir, deep); err != nil || !slices.Equal(got[0], want) || len(got[1]) != 0 {
		t.Errorf("%q %v\nwant %q", got, err, want)
	}
	if got, whole := walkSockets(dir, 1, 100, time.Time{}); len(got) != 4 || whole {
		t.Errorf("the walk finds %q %v", got, whole)
	}
}

// A socket is found by its file, whatever it was called when it was bound.
func TestMovedSockets(t *testing.T) {
	for name, bind := range map[string]func(t *testing.T, at, outside string){
		"relative, and its process is elsewhere now": func(t *testing.T, at, outside string) {
			t.Chdir(filepath.Dir(at))
			listenAt(t, "sock")
			t.Chdir(outside)
		},
		"bound elsewhere": func(t *testing.T, at, outside string) {
			listenAt(t, filepath.Join(outside, "sock"))
			rename(t, filepath.Join(outside, "sock"), at)
		},
		"renamed in place": func(t *testing.T, at, _ string) {
			listenAt(t, at+".new")
			rename(t, at+".new", at)
		},
		"replaced by another one": func(t *testing.T, at, outside string) {
			listenAt(t, filepath.Join(outside, "sock"))
			rename(t, filepath.Join(outside, "sock"), at)
			listenAt(t, filepath.Join(outside, "sock"))
		},
		"through a descriptor": func(t *testing.T, at, _ string) {
			d, err := os.Open(filepath.Dir(at))
			if err != nil {
				t.Fatal(err)
			}
			listenAt(t, "/proc/self/fd/"+strconv.Itoa(int(d.Fd()))+"/sock")
			d.Close()
		},
		"with a second name": func(t *testing.T, at, outside string) {
			listenAt(t, filepath.Join(outside, "sock"))
			if err := os.Link(filepath.Join(outside, "sock"), at); err != nil {
				t.Fatal(err)
			}
		},
		"not listened at yet": func(t *testing.T, at, outside string) {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Close(fd) })
			if err := unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(outside, "sock")}); err != nil {
				t.Fatal(err)
			}
			rename(t, filepath.Join(outside, "sock"), at)
		},
		"where it says": func(t *testing.T, at, _ string) { listenAt(t, at) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, outside := t.TempDir(), t.TempDir()
			for i := range 3 * walkDirs {
				if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			deep := filepath.Join(dir, "99", "b")
			if err := os.Mkdir(deep, 0o700); err != nil {
				t.Fatal(err)
			}
			want := filepath.Join(deep, "sock")
			bind(t, want, outside)
			if got, err := Sockets(dir); err != nil || !slices.Equal(got[0], []string{want}) {
				t.Errorf("%q %v", got, err)
			}
		})
	}
}

// What can't be looked through is refused, and only when something has to be found.
func TestTooManyToSearch(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for i := range 3 * walkDirs {
		if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	listenAt(t, filepath.Join(outside, "a"))
	// Another program's may be lost just now, as the file of one that is ending.
	ours := func(err error) bool { return err != nil && strings.Contains(err.Error(), outside) }
	if got, err := socketsIn(100, []string{dir}); ours(err) || len(got[0]) != 0 {
		t.Errorf("nothing is lost: %q %v", got, err)
	}
	rename(t, filepath.Join(outside, "a"), filepath.Join(outside, "b"))
	if got, err := socketsIn(100, []string{dir}); ours(err) || len(got[0]) != 0 {
		t.Errorf("renamed in place: %q %v", got, err)
	}
	rename(t, filepath.Join(outside, "b"), filepath.Join(dir, "99", "sock"))
	_, err := socketsIn(100, []string{dir})
	for end := time.Now().Add(10 * time.Second); err != nil && !ours(err) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		_, err = socketsIn(100, []string{dir}) // the other's was named
	}
	if !ours(err) || !strings.Contains(err.Error(), "too many files") {
		t.Errorf("lost: %v", err)
	}
	if got, err := socketsIn(10_000, []string{dir}); err != nil || len(got[0]) != 1 {
		t.Errorf("the control: %q %v", got, err)
	}
}

func listenAt(t *testing.T, name string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	t.Cleanup(func() { l.Close() })
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestSocketName(t *testing.T) {
	for line, want := range map[string]string{
		"Num       RefCount Protocol Flags    Type St Inode Path":              "Path",
		"0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/a b":  "/run/a b",
		"0000000000000000: 00000003 00000000 00000000 0001 03   123":           "",
		"0000000000000000: 00000002 00000000 00010000 0001 01    99 @abstract": "@abstract",
		"": "", "x": "",
	} {
		if got := socketName(line); got != want {
			t.Errorf("%q: %q", line, got)
		}
	}
}

func TestCheckPoints(t *testing.T) {
	outer, src := t.TempDir(), t.TempDir()
	for _, d := range []string{"dir", "ai"} {
		if err := os.Mkdir(filepath.Join(outer, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outer, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(src, filepath.Join(outer, "link")); err != nil {
		t.Fatal(err)
	}
	project := policy.Mount{Kind: policy.KindBind, Source: outer, Target: "/p", Why: policy.WhyProject}
	for at, want := range map[string]string{"dir": "", "missing": "there is no", "link": "is a symlink", "link/x": "is a symlink", "file": "not both", "dir/missing": "there is no"} {
		m := policy.Mount{Kind: policy.KindBind, Source: src, Target: "/p/" + at, ID: policy.Identity{Ino: 1}, Why: policy.WhyMount}
		err := CheckPoints([]policy.Mount{project, m})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", at, err, want)
		}
	}
}

func TestSame(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"agents/skills", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	alias := filepath.Join(t.TempDir(), "alias") // stands for a bind mount
	if err := os.Symlink(filepath.Join(dir, "agents"), alias); err != nil {
		t.Fatal(err)
	}
	for pair, want := range map[[2]string]bool{
		{alias, filepath.Join(dir, "agents")}: true, {filepath.Join(alias, "skills"), filepath.Join(dir, "agents")}: true,
		{alias, filepath.Join(dir, "agents/skills")}: true, {alias, filepath.Join(dir, "other")}: false, {alias, filepath.Join(dir, "missing")}: false,
	} {
		if got := Same(pair[0], pair[1]); got != want {
			t.Errorf("%q: %v", pair, got)
		}
	}
}

func TestSameIn(t *testing.T) {
	const table = `20 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
21 20 259:2 / /home rw - ext4 /dev/home rw
22 20 259:2 /dev/shop /srv/alias rw - ext4 /dev/home rw
23 20 259:2 /dev/shop/.git/hooks /srv/hooks rw - ext4 /dev/home rw
24 20 259:2 /dev/a\040b /srv/a\040b rw - ext4 /dev/home rw
25 20 0:30 / /srv/over rw - tmpfs tmpfs rw
26 20 259:2 /dev/shop /srv/over rw - ext4 /dev/home rw
27 20 0:31 / /srv/other rw - tmpfs tmpfs rw
`
	for pair, want := range map[[2]string]bool{
		{"/srv/alias", "/home/dev/shop"}: true, {"/home/dev/shop", "/srv/alias"}: true, {"/srv/alias/src", "/home/dev/shop"}: true,
		{"/srv/hooks", "/home/dev/shop"}: true, {"/srv/a b", "/home/dev/a b/c"}: true, {"/srv/over", "/home/dev/shop"}: true,
		{"/srv/alias", "/home/dev/shopping"}: false, {"/srv/other", "/home/dev/shop"}: false, {"/srv/hooks", "/home/dev/other"}: false,
		{"/dev/shop", "/home/dev/shop"}: false, {"/srv/aliased", "/home/dev/shop"}: false,
	} {
		if got := sameIn(parseMounts(table), pair[0], pair[1]); got != want {
			t.Errorf("%q: %v", pair, got)
		}
	}
}

func TestLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, to := range map[string]string{"a": "b", "b": at("d/c"), "d/c": "../e", "loop": "loop", "p": "d"} {
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := Links(at("a")), []string{at("a"), at("b"), at("d/c"), at("e")}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := Links(at("p/c")), []string{at("d/c"), at("e")}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Links(at("loop")); len(got) != 40 {
		t.Errorf("%d places", len(got))
	}
}
