//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// --insecure-keep-root: uid 0 inside is all that is kept. Everything else is as
// without it, and the positive control of a refusal is that other run.
func TestKeepRoot(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	agents := filepath.Join(b.Dir+"-agents", "d")
	if err := os.MkdirAll(agents, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(t, filepath.Dir(agents)) })
	if err := os.WriteFile(filepath.Join(agents, "f"), []byte("agents\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	const script = `id -u; id -g; id -un; echo $HOME; grep -E "^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp):" /proc/self/status | tr -s "\t" " "
echo own >made; echo home >$HOME/file; cat $HOME/file; cat ~/.agents/f
(echo x >~/.agents/f) 2>/dev/null || echo agents no
rm -rf ~/.agents 2>/dev/null; cat ~/.agents/f
nft flush ruleset >/dev/null 2>&1 || echo nft no
for f in /etc/x /usr/x /proc/sys/net/ipv4/ip_forward /proc/sys/kernel/core_pattern /proc/sysrq-trigger /sys/kernel/uevent_helper; do (echo 0 >$f) 2>/dev/null && echo "WROTE $f"; done
chown 1000 made 2>/dev/null && echo CHOWNED; mount -t tmpfs x /mnt 2>/dev/null && echo MOUNTED; unshare -U true 2>/dev/null && echo UNSHARED; mknod dev c 1 3 2>/dev/null && echo NODE
ls /proc/1/root >/dev/null 2>&1 && echo ROOT OF PID 1; cat /proc/1/environ 2>/dev/null | tr -d "\0" | head -c 20
true`
	flags := []string{"--insecure-keep-root", "--agents-dir", agents, "--report", report}
	r := b.OK(append(flags, b.Gated("sh", "-c", script)...)...)
	const none = "0000000000000000"
	want := strings.Join([]string{
		"0", "0", "root", "/home/sandbox", "Uid: 0 0 0 0", "Gid: 0 0 0 0", "Groups: ",
		"CapInh: " + none, "CapPrm: " + none, "CapEff: " + none, "CapBnd: " + none, "CapAmb: " + none, "NoNewPrivs: 1", "Seccomp: 2",
		"home", "agents", "agents no", "agents", "nft no", "",
	}, "\n")
	if r.Out != want {
		t.Errorf("got  %q\nwant %q\n%s", r.Out, want, r.Err)
	}
	if !strings.Contains(r.Err, "KEEP-ROOT: ") {
		t.Errorf("the start says nothing of it: %s", r.Err)
	}
	if text, err := os.ReadFile(report); err != nil || !strings.Contains(string(text), `"keep_root": true`) {
		t.Errorf("the report says nothing of it: %s %v", text, err)
	}
	for _, look := range []string{"--print-policy", "--print-policy=json", "--dry-run"} {
		if out := b.OK("--insecure-keep-root", look, "--", "true").Out; !strings.Contains(out, "KEEP-ROOT: ") || !strings.Contains(out, "aisb-home-") {
			t.Errorf("%s says nothing of it: %s", look, out)
		}
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(filepath.Join(b.Dir, "made"), &st); err != nil || int(st.Uid) != os.Getuid() || int(st.Gid) != os.Getgid() {
		t.Errorf("what it wrote belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
	if text, err := os.ReadFile(filepath.Join(agents, "f")); err != nil || string(text) != "agents\n" {
		t.Errorf("the agents directory: %q %v", text, err)
	}
	// Its home is another one, and is kept; nobody else's ids are in it.
	if out := b.OK("--net", "none", "--insecure-keep-root", "--", "sh", "-c", "cat $HOME/file; stat -c %u:%a $HOME").Out; out != "home\n0:700\n" {
		t.Errorf("%q", out)
	}
	if out := b.OK("--net", "none", "--", "sh", "-c", "cat $HOME/file 2>/dev/null; id -u").Out; out != "1000\n" {
		t.Errorf("without it: %q", out)
	}
	// The network is as shut: the host on the list answers, no other does.
	url := "https://" + b.Host("ok.test") + "/"
	if r := b.OK(append([]string{"--insecure-keep-root"}, b.Gated("curl", "-sS", url)...)...); !strings.Contains(r.Out, w.net.Marker) {
		t.Errorf("the positive control: %s", r)
	}
	no := b.Host("no.test")
	if r := b.Run(append([]string{"--insecure-keep-root"}, b.Gated("sh", "-c", "nft flush ruleset; curl -sS --max-time 20 https://"+no+"/; curl -sS --noproxy '*' --max-time 5 http://198.51.100.10/")...)...); r.Code == 0 || strings.Contains(r.Out, w.net.Marker) {
		t.Errorf("a host off the list: %s", r)
	}
	// The ephemeral one too, and a further command.
	if out := b.OK("--net", "none", "--insecure-keep-root", "--ephemeral-home", "--", "sh", "-c", "touch $HOME/x && id -u").Out; out != "0\n" {
		t.Errorf("%q", out)
	}
}
