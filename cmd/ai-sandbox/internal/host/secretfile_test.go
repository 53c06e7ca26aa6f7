package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadSecretFile(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(base, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"own", "project/sub", "away"} {
		must(os.MkdirAll(at(d), 0o700))
	}
	for name, mode := range map[string]os.FileMode{"own/good": 0o600, "own/read": 0o400, "own/group": 0o640, "own/world": 0o604, "own/exec": 0o601, "project/in": 0o600} {
		must(os.WriteFile(at(name), []byte("A=1\n"), 0o600))
		must(os.Chmod(at(name), mode))
	}
	must(os.WriteFile(at("own/big"), make([]byte, 101), 0o600))
	must(unix.Mkfifo(at("own/fifo"), 0o600))
	for from, to := range map[string]string{
		"own/link": at("own/good"), "project/planted": at("own/good"), "project/sub/dir": at("own"), "own/through": "../project/planted",
		"own/loop": "loop", "own/lost": "nowhere", "away/project": "../project/sub/dir",
	} {
		must(os.Symlink(to, at(from)))
	}
	for name, want := range map[string]string{
		"own/good": "", "own/read": "", "own/link": "",
		"own/group": "is open to other users (mode 0640); shut it with: chmod 600 " + at("own/group"),
		"own/world": "is open to other users (mode 0604)", "own/exec": "is open to other users (mode 0601)",
		"own/big": "has more than 100 bytes", "own/fifo": "is not a regular file", "own": "is not a regular file",
		"own/none": "does not exist", "own/lost": "does not exist", "own/loop": "too many levels",
		"project/in": "PROJECT", "project/planted": "PROJECT", "project/sub/dir/good": "PROJECT", "own/through": "PROJECT", "away/project/good": "PROJECT",
	} {
		f, err := ReadSecretFile("env_file", at(name), 100)
		switch {
		case want == "PROJECT":
			if err != nil || f.Within([]string{"", at("away/other"), at("project")}) != at("project") {
				t.Errorf("%s: %v, %q", name, err, f.Places)
			}
		case want == "":
			if err != nil || string(f.Data) != "A=1\n" || f.Within([]string{at("project"), at("ow")}) != "" {
				t.Errorf("%s: %v, %q, %q", name, err, f.Data, f.Places)
			}
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, not %s", name, err, want)
		}
	}
	if os.Getuid() == 0 {
		must(os.Chown(at("own/good"), 12345, 12345))
		if _, err := ReadSecretFile("env_file", at("own/good"), 100); err == nil || !strings.Contains(err.Error(), "belongs to another user (uid 12345)") {
			t.Error(err)
		}
	}
}
