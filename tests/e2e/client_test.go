//go:build e2e

package e2e

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

// Each client works through the gate as it is, and one that ignores all of the
// proxy settings fails at once and never gets out.
func TestClients(t *testing.T) {
	t.Parallel()
	// ALLOWED is a host on the list. Each script prints the marker.
	for name, script := range map[string]string{
		"curl":          `curl -sS https://ALLOWED/`,
		"curl http":     `curl -sS http://ALLOWED/`,
		"node fetch":    `node -e 'fetch("https://ALLOWED/").then(r => r.text()).then(console.log)'`,
		"node https":    `node -e 'require("https").get("https://ALLOWED/", r => r.pipe(process.stdout)).on("error", e => { console.error(e.message); process.exit(1) })'`,
		"python urllib": `python3 -c 'import urllib.request; print(urllib.request.urlopen("https://ALLOWED/").read().decode())'`,
		"go":            `./probe fetch https://ALLOWED/`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			r := b.OK(b.Gated("sh", "-c", strings.ReplaceAll(script, "ALLOWED", b.Host("ok.test")))...)
			if !strings.Contains(r.Out, w.net.Marker) || !w.net.Reached(b.Host("ok.test")) {
				t.Errorf("it does not work through the gate: %s", r)
			}
			no := b.Host("no.test")
			r = b.Run(b.Gated("sh", "-c", strings.ReplaceAll(script, "ALLOWED", no))...)
			if strings.Contains(r.Out, w.net.Marker) {
				t.Errorf("a host off the list answered: %s", r)
			}
			unseen(t, no)
		})
	}
	// ADDR is where the far server is, HOST a name on the list.
	for name, script := range map[string]string{
		"curl":     `curl -sS --noproxy '*' --resolve HOST:443:ADDR https://HOST/`,
		"node":     `NODE_USE_ENV_PROXY= node -e 'fetch("http://ADDR/").then(r => r.text()).then(console.log)'`,
		"npm":      `npm_config_proxy= npm_config_https_proxy= npm_config_noproxy='*' NO_PROXY='*' no_proxy='*' npm view --registry http://ADDR/ --fetch-retries 0 left-pad`,
		"git":      `env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY -u all_proxy -u ALL_PROXY git -c http.proxy= ls-remote http://ADDR/files/repo.git`,
		"python":   `python3 -c 'import urllib.request as u; print(u.build_opener(u.ProxyHandler({})).open("http://ADDR/").read().decode())'`,
		"bare env": `env -i PATH="$PATH" HOME=/tmp python3 -c 'import urllib.request as u; print(u.urlopen("http://ADDR/").read().decode())'`,
		"go":       `./probe fetch-direct http://ADDR/`,
		"bash":     `bash -c 'exec 3<>/dev/tcp/ADDR/80 && echo "GET / HTTP/1.0" >&3 && cat <&3'`,
	} {
		t.Run("without proxy "+name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			// One of this test's own at the far address, so that what it sees
			// can only come from here.
			l, err := w.net.Listen("198.51.100.12:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			s := strings.NewReplacer("HOST", b.Host("ok.test"), "ADDR/80", "198.51.100.12/"+port(l.Addr), ":443:ADDR", ":443:198.51.100.12", "ADDR", l.Addr).Replace(script)
			r := b.Run(b.Gated("sh", "-c", "date +%s%N >start; "+s+"; code=$?; date +%s%N >end; exit $code")...)
			if r.Code == 0 || strings.Contains(r.Out, w.net.Marker) || l.Count() != 0 {
				t.Errorf("it got out (%d connections), or did not fail: %s", l.Count(), r)
			}
			if r.Code >= 125 && r.Code <= 127 {
				t.Errorf("the client did not run: %s", r)
			}
			took, err := time.ParseDuration(subtract(t, b.File(t, "end"), b.File(t, "start")) + "ns")
			if err != nil || took > time.Minute {
				t.Errorf("it hung for %v (%v): %s", took, err, r)
			}
			unseen(t, b.Token)
		})
	}
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

func subtract(t *testing.T, a, b string) string {
	t.Helper()
	return strings.TrimSpace(drive.Output(t, "sh", "-c", "echo $(("+a+" - "+b+"))"))
}

// git over https, against a repository that a far server has.
func TestGit(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	work, bare := filepath.Join(t.TempDir(), "work"), filepath.Join(w.home, "e2e", "files", b.Token+".git")
	t.Cleanup(func() { os.RemoveAll(bare) })
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	git("init", "-q", "-b", "main", work)
	if err := os.WriteFile(filepath.Join(work, "file"), []byte(w.net.Marker), 0o600); err != nil {
		t.Fatal(err)
	}
	git("-C", work, "add", "file")
	git("-C", work, "commit", "-q", "-m", "one")
	git("clone", "-q", "--bare", work, bare)
	git("-C", bare, "update-server-info")
	from := "https://" + b.Host("ok.test") + "/files/" + b.Token + ".git"
	r := b.OK(b.Gated("sh", "-c", "git clone -q "+from+" clone && cat clone/file")...)
	if r.Out != w.net.Marker {
		t.Errorf("%s", r)
	}
	drive.TestGitOverSSH(t, b, "files/"+b.Token+".git")
	no := "https://" + b.Host("no.test") + "/files/" + b.Token + ".git"
	r = b.Run(b.Gated("git", "ls-remote", no)...)
	if r.Code == 0 || !strings.Contains(r.Err, "403") {
		t.Errorf("a host off the list was not refused: %s", r)
	}
	unseen(t, b.Host("no.test"))
}

// A small package from the real registry, whose name npm itself tells. The same
// install without the entry is refused.
// Not parallel: the builds of other tests ask for the registry, too.
func TestNpmInstall(t *testing.T) {
	u, err := url.Parse(w.npm)
	if err != nil || u.Host == "" {
		t.Fatalf("npm's registry is %q: %v", w.npm, err)
	}
	b := newBox(t)
	install := []string{"sh", "-c", "rm -rf node_modules && npm install --no-audit --no-fund --fetch-retries 2 --prefix . --registry " + w.npm + " left-pad@1.3.0 && node -p 'require(\"left-pad\")(7, 3, 0)'"}
	if err := os.WriteFile(filepath.Join(b.Dir, "package.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := len(w.net.Queries(u.Hostname()))
	r := b.Run(append([]string{"--allow", b.Host("ok.test"), "--ephemeral-home", "--"}, install...)...)
	if r.Code == 0 || !strings.Contains(r.Out+r.Err, "403") {
		t.Errorf("without the entry: %s", r)
	}
	if now := w.net.Queries(u.Hostname()); len(now) != asked {
		t.Errorf("without the entry the registry was looked up: %q", now[asked:])
	}
	if _, err := os.Stat(filepath.Join(b.Dir, "node_modules", "left-pad")); err == nil {
		t.Error("the package is there without the entry")
	}
	r = b.OK(append([]string{"--allow", u.Host, "--ephemeral-home", "--"}, install...)...)
	if !strings.HasSuffix(strings.TrimSpace(r.Out), "007") {
		t.Errorf("%s", r)
	}
	if len(w.net.Queries(u.Hostname())) == asked {
		t.Error("nobody asked for the registry, so the package is from elsewhere")
	}
}
