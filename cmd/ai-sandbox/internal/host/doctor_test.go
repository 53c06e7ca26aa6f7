package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/policy"
)

// Whatever is found wrong, the doctor has a command for it, and none where all is well.
func TestEveryFailureHasAFix(t *testing.T) {
	failures := 0
	for _, change := range []func(*Facts){
		func(*Facts) {},
		func(f *Facts) { f.Home = "dev" },
		func(f *Facts) { f.Project.Path = "/" },
		func(f *Facts) { f.Project.Path = "/home/dev/.ssh" },
		func(f *Facts) { f.Project.Owner = 7 },
		func(f *Facts) { f.Steered = []string{"HOME", "TMPDIR"} },
		func(f *Facts) { f.Steered = []string{"/home/dev/.config/ai-sandbox/config"} },
		func(f *Facts) { f.UID = 0 },
		func(f *Facts) { f.RemoteEnv = "CONTAINER_HOST" },
		func(f *Facts) { f.Dirs.XDGRuntime = "" },
		func(f *Facts) { f.Dirs.RuntimeMode = 0 },
		func(f *Facts) { f.Dirs.RuntimeOwner = 7 },
		func(f *Facts) { f.Podman, f.Pasta, f.Bwrap, f.Squid = Tool{}, Tool{}, Tool{}, Tool{} },
		func(f *Facts) {
			f.Podman.Version, f.Pasta.MapHostLoopback, f.Bwrap.Version, f.Squid.OpenSSL = "4.3.1", false, "0.7", false
		},
		func(f *Facts) { f.Podman.Err, f.Pasta.Err, f.Bwrap.Err, f.Squid.Err = "x", "x", "x", "x" },
		func(f *Facts) { f.SubUIDs = 0 },
		func(f *Facts) { f.SubGIDs = 100 },
		func(f *Facts) { f.Bwrap.Setuid = true },
		func(f *Facts) { f.Bwrap.Refused = "no" },
		func(f *Facts) { f.Bwrap.Refused, f.Kernel.MaxUserNS = "no", "0" },
		func(f *Facts) { f.Bwrap.Refused, f.Kernel.UnprivilegedClone = "no", "0" },
		func(f *Facts) { f.Bwrap.Refused, f.Kernel.AppArmorRestricts = "no", "1" },
		func(f *Facts) { f.Cgroups.Controllers = nil },
		func(f *Facts) { f.Cgroups = probeCgroups("/nowhere", 1000, "/run/user/1000", "dev") },
	} {
		f := good()
		change(&f)
		for _, runtime := range runtimes {
			for _, v := range append(append(Doctor(f, runtime), Kernels(f)...), IDMapping(f), PodmanNamespace(f, f.Bwrap.Refused)) {
				switch {
				case v.OK() && v.Fix != "":
					t.Errorf("%s: %s is well, and has the fix %q", runtime, v.Name, v.Fix)
				case !v.OK() && (v.Fix == "" || strings.Contains(v.Fix, "\n") || strings.HasSuffix(v.Fix, " ")):
					t.Errorf("%s: %s has the fix %q: %s", runtime, v.Name, v.Fix, v.Problem)
				case !v.OK():
					failures++
				}
			}
		}
	}
	if failures < 60 {
		t.Errorf("only %d failures were seen", failures)
	}
}

func TestCheckSpace(t *testing.T) {
	for _, c := range []struct {
		name    string
		s       Space
		problem string
	}{
		{"enough", Space{Path: "/x", Bytes: 1 << 30, Files: 1e6}, ""},
		{"full", Space{Path: "/x", Bytes: 1 << 20, Files: 1e6}, "only 1 MB are free for /x, and 67 MB are needed; make room"},
		{"no inodes", Space{Path: "/x", Bytes: 1 << 30, Files: 3}, "only 3 more files fit in the file system of /x, whatever their size; remove some"},
		{"inodes are not counted", Space{Path: "/x", Bytes: 1 << 30, NoFiles: true}, ""},
		{"unreadable", Space{Path: "/x", Err: fs.ErrPermission}, "the file system of /x can't be looked at (permission denied); make it accessible"},
	} {
		if v := CheckSpace("disk", c.s, minState, "ai-sandbox clean"); v.Problem != c.problem {
			t.Errorf("%s: %q", c.name, v.Problem)
		}
	}
	// Of what is not there yet, the file system above it counts.
	dir := t.TempDir()
	if a, b := SpaceAt(dir), SpaceAt(filepath.Join(dir, "not", "yet")); a.Err != nil || a.Bytes == 0 || b.Err != nil || b.Bytes == 0 {
		t.Errorf("%+v %+v", a, b)
	}
	if s := SpaceAt(filepath.Join(dir, "x\x00y")); s.Err == nil || errors.Is(s.Err, fs.ErrNotExist) {
		t.Errorf("%+v", s)
	}
}

func TestCheckClock(t *testing.T) {
	now := written.AddDate(1, 0, 0)
	for _, c := range []struct {
		name  string
		clock Clock
		says  string // of a problem, or else in the detail
		bad   bool
	}{
		{"right", Clock{now, true, now.Add(-time.Hour)}, "2027-01-01T00:00:00Z", false},
		{"nobody keeps it", Clock{now, false, time.Time{}}, "nothing keeps it right", true},
		{"of a machine without a battery", Clock{time.Unix(0, 0), true, time.Time{}}, "1970-01-01", true},
		{"set back", Clock{now, true, now.Add(48 * time.Hour)}, "was set back", true},
		{"a file system with another clock", Clock{now, true, now.Add(time.Minute)}, "2027", false},
	} {
		v := CheckClock(c.clock)
		if v.OK() == c.bad || !strings.Contains(v.Detail+v.Problem, c.says) || c.bad == (v.Fix == "") {
			t.Errorf("%s: %+v", c.name, v)
		}
		if v.Info != (c.name == "nobody keeps it") {
			t.Errorf("%s: only that no run fails by: %+v", c.name, v)
		}
	}
	if c := ReadClock(good()); time.Since(c.Now) > time.Minute {
		t.Errorf("%+v", c)
	}
}

// The doctor asks each program anew, whatever was kept, and what it hears is kept for
// the next run.
func TestAskTools(t *testing.T) {
	in, _, bin := scene(t)
	program(t, filepath.Join(bin, "podman"), "podman version 5.4.2")
	in.Env["PATH"] = bin
	f, err := Probe(in)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ProbeTools(f, policy.RuntimePodman)
	}
	if n := asked(filepath.Join(bin, "podman")); n != 1 {
		t.Fatalf("asked %d times", n)
	}
	if got := AskTools(f); got.Podman.Version != "5.4.2" || asked(filepath.Join(bin, "podman")) != 2 {
		t.Errorf("%+v, asked %d times", got.Podman, asked(filepath.Join(bin, "podman")))
	}
	if err := os.Remove(filepath.Join(bin, "podman")); err != nil {
		t.Fatal(err)
	}
	if got := AskTools(f); got.Podman.Path != "" && strings.HasPrefix(got.Podman.Path, bin) {
		t.Errorf("%+v", got.Podman)
	}
}

// What the kernel forbids podman is named with the setting, and mended by it.
func TestPodmanNamespace(t *testing.T) {
	f := good()
	if v := PodmanNamespace(f, ""); !v.OK() || v.Fix != "" {
		t.Errorf("%+v", v)
	}
	for fix, kernel := range map[string]Kernel{
		"podman unshare true":                              {MaxUserNS: "100"},
		"sudo sysctl user.max_user_namespaces=15000":       {MaxUserNS: "0"},
		"sudo sysctl kernel.unprivileged_userns_clone=1":   {UnprivilegedClone: "0"},
		"apparmor_parser -r /etc/apparmor.d/podman":        {AppArmorRestricts: "1"},
		"profile podman /usr/bin/podman flags=(unconfined": {AppArmorRestricts: "1"},
	} {
		f.Kernel = kernel
		if v := PodmanNamespace(f, "cannot clone: \x1b"); !strings.Contains(v.Fix, fix) || !strings.HasSuffix(v.Problem, ` (podman says: "cannot clone: \x1b")`) {
			t.Errorf("%s: %+v", fix, v)
		}
	}
}

// Nothing is said of a podman that is not there but that it is not.
func TestNoPodman(t *testing.T) {
	f := good()
	f.Podman = Tool{}
	for _, v := range Check(f, policy.RuntimePodman) {
		if v.OK() && v.Name != "containers" && strings.HasPrefix(v.Detail, "the user's own podman") {
			t.Errorf("%+v", v)
		}
	}
	if v := NotTried("sandbox", "x", "y"); !v.Untried() || v.OK() || !v.Info || (Verdict{Name: "sandbox"}).Untried() {
		t.Errorf("%+v", v)
	}
}

// A newuidmap that has lost its power gives out no ids.
func TestMayMapIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "newuidmap")
	program(t, path, "x")
	if mayMapIDs(path) || mayMapIDs(path+"x") {
		t.Error("it has no power")
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if !mayMapIDs(path) {
		t.Error("it is setuid")
	}
}

// Whatever the file system keeps of a label, only the shared one of containers is well.
func TestMountLabel(t *testing.T) {
	for _, c := range []struct {
		label string
		err   error
		says  string
	}{
		{"system_u:object_r:container_file_t:s0", nil, ""},
		{"system_u:object_r:container_file_t:s0:c1,c2", nil, "not the shared one"},
		{"unconfined_u:object_r:user_home_t:s0", nil, "not the shared one"},
		{"", nil, "not the shared one"},
		{"", unix.ENODATA, "keeps no SELinux label"},
	} {
		if v := mountLabel("/d", c.label, c.err); v.OK() != (c.says == "") || !strings.Contains(v.Problem, c.says) || v.OK() == (v.Fix != "") {
			t.Errorf("%q: %+v", c.label, v)
		}
	}
	dir := filepath.Join(t.TempDir(), "aisb-doctor-1-1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if v := MountLabel(dir); v.OK() && !good().SELinux {
		t.Errorf("%+v", v)
	}
}

// A fix is a command of this machine's, with the name that a package has there.
func TestInstallCommand(t *testing.T) {
	for installer, want := range map[string][2]string{
		"": {"sudo apt-get install uidmap", "sudo apt-get install --reinstall passt"}, "apt-get": {"sudo apt-get install uidmap", "sudo apt-get install --reinstall passt"},
		"dnf": {"sudo dnf install shadow-utils", "sudo dnf reinstall passt"}, "pacman": {"sudo pacman -S shadow", "sudo pacman -S passt"},
		"zypper": {"sudo zypper install shadow", "sudo zypper install --force passt"},
	} {
		f := Facts{Installer: installer}
		if got := [2]string{InstallCommand(f, "uidmap", false), InstallCommand(f, "passt", true)}; got != want {
			t.Errorf("%s: %q", installer, got)
		}
	}
	in, _, bin := scene(t)
	program(t, filepath.Join(bin, "dnf"), "x")
	in.Env["PATH"] = bin
	f, err := Probe(in)
	if err != nil {
		t.Fatal(err)
	}
	f.SearchPath = []string{bin}
	if got := AskTools(f); got.Installer != "dnf" {
		t.Errorf("%q", got.Installer)
	}
	program(t, filepath.Join(bin, "apt-get"), "x")
	if got := AskTools(f); got.Installer != "apt-get" {
		t.Errorf("%q", got.Installer)
	}
}

// What waits for something else is told, and fails nothing by itself.
func TestWaiting(t *testing.T) {
	well := Verdict{Name: "podman"}
	bad := Verdict{Name: "pasta", Problem: "x", Fix: "mend it"}
	if got := Waiting([]Verdict{well, {Name: "squid", Problem: "x", Info: true}}, policy.RuntimePodman); len(got) > 0 {
		t.Errorf("nothing is wrong: %+v", got)
	}
	got := Waiting([]Verdict{well, bad, {Name: "disk"}}, policy.RuntimePodman)
	names := map[string]bool{}
	for _, v := range got {
		names[v.Name] = true
		if !v.Untried() || v.Fix != "mend it" || !strings.Contains(v.Problem, "mend pasta first") {
			t.Errorf("%+v", v)
		}
	}
	if !names["loopback"] || !names["podman service"] || names["disk"] || len(got) != 10 {
		t.Errorf("%+v", got)
	}
}
