//go:build squid

// What takes root, in the test host: another user's client is another user's.

package builtin_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ai-sandbox/gate/builtin"
	"ai-sandbox/gate/gatetest"
)

// TestOtherUser: the gate's port and socket are open to all, and it serves its
// own user alone.
func TestOtherUser(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	dir, err := os.MkdirTemp("", "gate")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := builtin.Config{Allow: gatetest.Allow}
	_, onTCP := serve(t, c, "tcp", "127.0.0.1:0")
	socket := filepath.Join(dir, "s")
	serve(t, c, "unix", socket)
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	const say = `printf 'GET http://ok.test/ HTTP/1.0\r\n\r\n'`
	host, port, _ := strings.Cut(onTCP, ":")
	for name, script := range map[string]string{
		"tcp":  `exec 3<>/dev/tcp/` + host + `/` + port + ` && ` + say + ` >&3 && cat <&3`,
		"unix": `{ ` + say + `; sleep 1; } | socat -t 5 - UNIX-CONNECT:` + socket,
	} {
		for _, uid := range []uint32{0, 65534} {
			w.Reset()
			cmd := exec.Command("bash", "-c", script+"; id -u")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v: %s", name, err, out)
			}
			passed := strings.Contains(string(out), "MARKER")
			if passed != (uid == 0) || passed != (len(w.Hits()) > 0) || uid != 0 && !strings.Contains(string(out), "another user's") {
				t.Errorf("%s as %d: %q, hits %+v", name, uid, out, w.Hits())
			}
		}
	}
}
