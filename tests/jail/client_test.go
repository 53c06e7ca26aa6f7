//go:build e2e

package jail

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

// Each client works through the gate as it is, and one that ignores all of the
// proxy settings fails at once and never gets out.
func TestClients(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		// ALLOWED is a host on the list. Each script prints the marker.
		clients := map[string]string{
			"curl":          `curl -sS https://ALLOWED/`,
			"curl http":     `curl -sS http://ALLOWED/`,
			"python urllib": `python3 -c 'import urllib.request; print(urllib.request.urlopen("https://ALLOWED/").read().decode())'`,
			"go":            `./probe fetch https://ALLOWED/`,
		}
		if _, err := exec.LookPath("java"); err == nil { // its trust store has our CA: ok.test's is of that
			clients["java"] = `echo 'class F { public static void main(String[] a) throws Exception { System.out.print(new String(new java.net.URL(a[0]).openStream().readAllBytes())); } }' >F.java && java F.java https://ALLOWED/`
		}
		// ADDR is where a far server is, HOST a name on the list.
		stray := map[string]string{
			"curl":     `curl -sS --noproxy '*' --resolve HOST:443:IP https://HOST:443/`,
			"git":      `env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY -u all_proxy -u ALL_PROXY git -c http.proxy= ls-remote http://ADDR/files/repo.git`,
			"python":   `python3 -c 'import urllib.request as u; print(u.build_opener(u.ProxyHandler({})).open("http://ADDR/").read().decode())'`,
			"bare env": `env -i PATH="$PATH" HOME=/tmp python3 -c 'import urllib.request as u; print(u.urlopen("http://ADDR/").read().decode())'`,
			"go":       `./probe fetch-direct http://ADDR/`,
			"bash":     `bash -c 'exec 3<>/dev/tcp/IP/PORT && echo "GET / HTTP/1.0" >&3 && cat <&3'`,
			"socks":    `ALL_PROXY=socks5h://IP:PORT curl -sS --noproxy '*' http://ADDR/`,
			"all":      `NO_PROXY='*' no_proxy='*' curl -sS http://ADDR/`,
		}
		// Node's proxy variable came with 22.21; older ones need an agent.
		if w.testHost {
			clients["node fetch"] = `node -e 'fetch("https://ALLOWED/").then(r => r.text()).then(console.log)'`
			clients["node https"] = `node -e 'require("https").get("https://ALLOWED/", r => r.pipe(process.stdout)).on("error", e => { console.error(e.message); process.exit(1) })'`
			stray["node"] = `NODE_USE_ENV_PROXY= node -e 'fetch("http://ADDR/").then(r => r.text()).then(console.log)'`
			stray["npm"] = `npm_config_proxy= npm_config_https_proxy= npm_config_noproxy='*' NO_PROXY='*' no_proxy='*' npm view --registry http://ADDR/ --fetch-retries 0 left-pad`
		}
		for name, script := range clients {
			t.Run(name, func(t *testing.T) {
				c := newBox(t)
				c.Env = b.Env
				r := c.Run(c.Gated("sh", "-c", strings.ReplaceAll(script, "ALLOWED", c.Host("ok.test")))...)
				if r.Code != 0 || !strings.Contains(r.Out, w.net.Marker) || !w.net.Reached(c.Host("ok.test")) {
					t.Errorf("it does not work through the gate: %s", r)
				}
				no := c.Host("no.test")
				r = c.Run(c.Gated("sh", "-c", strings.ReplaceAll(script, "ALLOWED", no))...)
				if strings.Contains(r.Out, w.net.Marker) || !strings.Contains(r.Err, "refused: "+no) {
					t.Errorf("a host off the list answered, or is not named: %s", r)
				}
				unseen(t, no)
			})
		}
		for name, script := range stray {
			t.Run("without proxy "+name, func(t *testing.T) {
				c := newBox(t)
				c.Env = b.Env
				// One of this test's own at the far address, so that what it sees
				// can only come from here.
				l, err := w.net.Listen("198.51.100.12:0")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				ip, port, _ := strings.Cut(l.Addr, ":")
				s := strings.NewReplacer("HOST:443", c.Host("ok.test")+":"+port, "HOST", c.Host("ok.test"), "ADDR", l.Addr, "IP", ip, "PORT", port).Replace(script)
				r := c.Run(c.Gated("sh", "-c", "date +%s%N >start; "+s+"; code=$?; date +%s%N >end; exit $code")...)
				if r.Code == 0 || strings.Contains(r.Out, w.net.Marker) || l.Count() != 0 {
					t.Errorf("it got out (%d connections), or did not fail: %s", l.Count(), r)
				}
				if r.Code >= 125 && r.Code <= 127 {
					t.Errorf("the client did not run: %s", r)
				}
				from, err1 := strconv.ParseInt(c.File(t, "start"), 10, 64)
				to, err2 := strconv.ParseInt(c.File(t, "end"), 10, 64)
				if took := time.Duration(to - from); err1 != nil || err2 != nil || took > time.Minute {
					t.Errorf("it hung for %v: %s", took, r)
				}
				unseen(t, c.Token)
			})
		}
	})
}

// git over https, against a repository that a far server has.
func TestGit(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		work, bare := filepath.Join(t.TempDir(), "work"), filepath.Join(w.own, "files", b.Token+".git")
		git := func(args ...string) {
			t.Helper()
			cmd := exec.Command("git", args...)
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("git %q: %v: %s", args, err, out)
			}
		}
		git("init", "-q", "-b", "main", work)
		write(t, filepath.Join(work, "file"), w.net.Marker, 0o600)
		git("-C", work, "add", "file")
		git("-C", work, "commit", "-q", "-m", "one")
		git("clone", "-q", "--bare", work, bare)
		git("-C", bare, "update-server-info")
		from := "https://" + b.Host("ok.test") + "/files/" + b.Token + ".git"
		r := b.OK(b.Gated("sh", "-c", "git clone -q "+from+" clone && cat clone/file")...)
		if r.Out != w.net.Marker {
			t.Errorf("%s", r)
		}
		drive.TestGitOverSSH(t, b.Box, "files/"+b.Token+".git")
		no := "https://" + b.Host("no.test") + "/files/" + b.Token + ".git"
		r = b.Run(b.Gated("git", "ls-remote", no)...)
		if r.Code == 0 || !strings.Contains(r.Err, "403") {
			t.Errorf("a host off the list was not refused: %s", r)
		}
		unseen(t, b.Host("no.test"))
	})
}

// A small package from the real registry, whose name npm itself tells. The same
// install without the entry is refused. Only the test host has a way out; on
// this machine a registry of the tests' own serves the package.
// Not parallel: nothing else may ask for the registry.
func TestNpmInstall(t *testing.T) {
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			b := newBox(t)
			b.Env = []string{"AISB_GATE_ENGINE=" + engine}
			if !w.testHost {
				t.Fatal("npm can't be reached from here: this runs in the test host alone")
			}
			registry := strings.TrimSpace(drive.Output(t, "npm", "config", "get", "registry"))
			u, err := url.Parse(registry)
			if err != nil || u.Host == "" {
				t.Fatalf("npm's registry is %q: %v", registry, err)
			}
			install := []string{"sh", "-c", "rm -rf node_modules && npm install --no-audit --no-fund --fetch-retries 2 --prefix . --registry " + registry + " left-pad@1.3.0 && node -p 'require(\"left-pad\")(7, 3, 0)'"}
			write(t, filepath.Join(b.Dir, "package.json"), "{}", 0o600)
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
		})
	}
}

// A file is fetched by a tool that knows proxies and used, from a host on the list
// and not from another: an installation in small, which needs no registry.
func TestDownload(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		write(t, filepath.Join(w.own, "files", b.Token, "mod.py"), "answer = '007'\n", 0o644)
		fetch := "curl -fsS -o mod.py https://HOST/files/" + b.Token + "/mod.py && python3 -c 'import mod; print(mod.answer)'"
		r := b.Run(b.Gated("sh", "-c", strings.ReplaceAll(fetch, "HOST", b.Host("no.test")))...)
		if r.Code == 0 || !strings.Contains(r.Err, "403") {
			t.Errorf("without the entry: %s", r)
		}
		unseen(t, b.Host("no.test"))
		if r := b.OK(b.Gated("sh", "-c", strings.ReplaceAll(fetch, "HOST", b.Host("ok.test")))...); r.Out != "007\n" {
			t.Errorf("%s", r)
		}
	})
}
