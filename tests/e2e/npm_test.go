//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ai-sandbox/image"
	"ai-sandbox/tests/e2e/agenttest"
	"ai-sandbox/tests/e2e/drive"
	"ai-sandbox/tests/e2e/internet"
)

// An npmSite is an npm registry with packages of a test's own. Builds reach it.
type npmSite struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	packages map[string][]npmPackage // by name, the newest last
	at       string                  // a path at which, and below which, something changes
	change   func(*answer)
}

type npmPackage struct {
	manifest map[string]any
	tarball  []byte
}

type answer struct {
	status int
	body   []byte
	cut    bool // the connection breaks off in the middle of it
}

func newNPMSite(t *testing.T) *npmSite {
	t.Helper()
	s := &npmSite{t: t, packages: map[string][]npmPackage{}}
	l, err := net.Listen("tcp", internet.Allowed+":0")
	if err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *npmSite) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.answer(strings.TrimPrefix(r.URL.Path, "/"))
	if s.change != nil && (r.URL.Path == s.at || strings.HasPrefix(r.URL.Path, s.at+"/")) {
		a.body = bytes.Clone(a.body)
		s.change(&a)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	if a.cut {
		a.body = a.body[:len(a.body)/2]
	}
	_, _ = w.Write(a.body) // a client that is gone is judged by what it says
}

// answer is what an honest registry says at a path.
func (s *npmSite) answer(path string) answer {
	name, file, isFile := strings.Cut(path, "/-/")
	list := s.packages[name]
	if !isFile && len(list) > 0 {
		versions, times := map[string]any{}, map[string]any{}
		latest := ""
		for _, p := range list {
			latest = p.manifest["version"].(string)
			versions[latest], times[latest] = p.manifest, "2026-01-01T00:00:00Z"
		}
		b, err := json.Marshal(map[string]any{"name": name, "dist-tags": map[string]any{"latest": latest}, "versions": versions, "time": times})
		if err != nil {
			s.t.Error(err)
		}
		return answer{status: http.StatusOK, body: b}
	}
	for _, p := range list {
		if file == p.manifest["version"].(string)+".tgz" {
			return answer{status: http.StatusOK, body: p.tarball}
		}
	}
	return answer{status: http.StatusNotFound, body: []byte("{}")}
}

// publish adds a package with files of its own.
func (s *npmSite) publish(name, version string, manifest map[string]any, files map[string]string) {
	s.t.Helper()
	manifest = maps.Clone(manifest)
	if manifest == nil {
		manifest = map[string]any{}
	}
	manifest["name"], manifest["version"] = name, version
	tgz := packNPM(s.t, manifest, files)
	manifest["dist"] = distOf(tgz, s.URL+"/"+name+"/-/"+version+".tgz")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packages[name] = append(s.packages[name], npmPackage{manifest, tgz})
}

func distOf(tgz []byte, address string) map[string]any {
	return map[string]any{"tarball": address, "integrity": integrityOf(tgz), "shasum": fmt.Sprintf("%x", sha1.Sum(tgz))}
}

func integrityOf(tgz []byte) string {
	sum := sha512.Sum512(tgz)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

func packNPM(t *testing.T, manifest map[string]any, files map[string]string) []byte {
	t.Helper()
	b, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	files = maps.Clone(files)
	if files == nil {
		files = map[string]string{}
	}
	files["package.json"] = string(b)
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	tw := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "package/" + name, Mode: 0o755, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// lock is a lock file for the newest version of a package, and of what that depends on.
func (s *npmSite) lock(root string) (pkg, lock string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	list := map[string]any{}
	var add func(name string, optional bool)
	add = func(name string, optional bool) {
		all := s.packages[name]
		if len(all) == 0 {
			s.t.Fatalf("%s is not there", name)
		}
		p := all[len(all)-1]
		e := map[string]any{"integrity": integrityOf(p.tarball)}
		for _, k := range []string{"version", "dependencies", "optionalDependencies", "engines", "bin", "os", "cpu"} {
			if v, ok := p.manifest[k]; ok {
				e[k] = v
			}
		}
		if _, ok := p.manifest["scripts"]; ok {
			e["hasInstallScript"] = true
		}
		if optional {
			e["optional"] = true
		}
		list["node_modules/"+name] = e
		for kind, optional := range map[string]bool{"dependencies": false, "optionalDependencies": true} {
			if deps, ok := p.manifest[kind].(map[string]any); ok {
				for dep := range deps {
					add(dep, optional)
				}
			}
		}
	}
	add(root, false)
	version := s.packages[root][len(s.packages[root])-1].manifest["version"]
	deps := map[string]any{root: version}
	list[""] = map[string]any{"name": "aisb-harness", "dependencies": deps}
	encode := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			s.t.Fatal(err)
		}
		return string(b)
	}
	return encode(map[string]any{"name": "aisb-harness", "private": true, "dependencies": deps}),
		encode(map[string]any{"name": "aisb-harness", "lockfileVersion": 3, "requires": true, "packages": list})
}

// spoil changes what it answers at a path and below, until mend.
func (s *npmSite) spoil(at string, change func(*answer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.change = at, change
}

func (s *npmSite) mend() { s.spoil("", nil) }

// Ways in which a registry goes wrong.
func anotherByte(a *answer) { a.body[len(a.body)/2] ^= 1 }
func half(a *answer)        { a.body = a.body[:len(a.body)/2] }
func breakOff(a *answer)    { a.cut = true }
func fails(a *answer)       { a.status, a.body = http.StatusInternalServerError, []byte("{}") }

// An npmBox is a box whose builds get real npm, and all packages from a site of its own.
type npmBox struct {
	*pinBox
	npm  *npmSite
	node *nodeSite
}

// oldHarness is a version that no recipe has: what an update of before has found.
const oldHarness = "99.0.0"

func nodeLine(t *testing.T, n string) string {
	t.Helper()
	major, _, _ := strings.Cut(image.DefaultNode, ".")
	return major + "." + n + ".0"
}

// newNPMBox makes it. Node is the one of the tests, in the base, and what a build unpacks
// leads there; apt does nothing, as in newPinBox.
func newNPMBox(t *testing.T) *npmBox {
	t.Helper()
	p := &npmBox{newBareBox(t), newNPMSite(t), newNodeSite(t)}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	if node, err = filepath.EvalSymlinks(node); err != nil {
		t.Fatal(err)
	}
	p.extra = []string{"-v", filepath.Dir(filepath.Dir(node)) + ":/node:ro"}
	p.base = "FROM " + setting(t, "AISB_BASE") + "\n" +
		"RUN mkdir -p /opt/node/lib/node_modules; cp -R /node/bin /opt/node/; cp -R /node/lib/node_modules/npm /opt/node/lib/node_modules/; " +
		"echo " + p.Token + " >/opt/node/token; for p in /usr/bin/apt-get /usr/sbin/update-ca-certificates; do echo '#!/bin/sh' >$p; chmod 755 $p; done; " +
		// There is no xz, and the site's tarballs are plain ones.
		`printf '%s\n' '#!/bin/sh' 'shift; exec /usr/bin/tar -xf "$@"' >/usr/local/bin/tar; chmod 755 /usr/local/bin/tar` + "\n" +
		// What a base says must not matter: a script is run or not by the recipe.
		"ENV npm_config_registry=" + p.npm.URL + "/ npm_config_fetch_retries=0 npm_config_ignore_scripts=false\n"
	p.push("one")
	first := nodeLine(t, "998")
	p.releaseNode(first)
	p.write("node/newest.json", map[string]any{"version": first, "site": p.node.URL, "seen": "2026-01-01T00:00:00Z"})
	p.Env = append(p.Env, "AISB_NODE_MIRROR="+p.node.URL, "AISB_NODE_VERSION=")
	return p
}

// write makes a record in the cache, as an update would have left it.
func (p *npmBox) write(name string, v any) {
	p.T.Helper()
	path := filepath.Join(p.cache, "ai-sandbox", name)
	b, err := json.Marshal(v)
	if err != nil {
		p.T.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.T.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		p.T.Fatal(err)
	}
}

// found has an update of before found the newest version of a harness.
func (p *npmBox) found(harness string) {
	p.T.Helper()
	pkg, lock := p.npm.lock(agenttest.Of(p.T, harness).Package)
	sum := sha256.Sum256([]byte(oldHarness + "\n" + "20.0.0" + "\n" + pkg + "\n" + lock))
	p.write("harness/"+harness+".json", map[string]any{"version": oldHarness, "node": "20.0.0", "package": pkg, "packages": lock,
		"sum": fmt.Sprintf("sha256:%x", sum), "seen": "2026-01-01T00:00:00Z"})
}

// releaseNode puts a Node on the site that says it is of a version, and is the base's.
func (p *npmBox) releaseNode(version string) {
	p.T.Helper()
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	for name, text := range map[string]string{
		"bin/node":                          "#!/bin/sh\ncase $1 in --version) echo v" + version + ";; *) exec /opt/node/bin/node \"$@\";; esac\n",
		"bin/npm":                           "#!/bin/sh\nexec /opt/node/bin/node /opt/node/lib/node_modules/npm/bin/npm-cli.js \"$@\"\n",
		"lib/node_modules/npm/package.json": `{"name": "npm", "version": "10.9.4"}`,
	} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "node/" + name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			p.T.Fatal(err)
		}
		if _, err := tw.Write([]byte(text)); err != nil {
			p.T.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		p.T.Fatal(err)
	}
	p.node.set("v"+version+"/"+nodeTarball(version), out.Bytes())
	p.node.set("v"+version+"/SHASUMS256.txt", fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(out.Bytes()), nodeTarball(version)))
	p.node.set("index.json", fmt.Appendf(nil, `[{"version": "v99.0.0", "files": ["linux-x64"]}, {"version": "v%s", "files": ["linux-x64"]}]`, version))
}

// logs is what the builds of the sandbox's images wrote.
func (p *npmBox) logs() string {
	p.T.Helper()
	files, err := filepath.Glob(filepath.Join(p.state, "ai-sandbox", "images", "sandbox-*.log"))
	if err != nil {
		p.T.Fatal(err)
	}
	all := ""
	for _, l := range files {
		b, err := os.ReadFile(l)
		if err != nil {
			p.T.Fatal(err)
		}
		all += string(b)
	}
	return all
}

// nothingKept: no image of the sandbox, with a name or without, and nothing of a build in
// the cache.
func (p *npmBox) nothingKept(after string) {
	p.T.Helper()
	if made := drive.Output(p.T, "podman", "images", "-aq", "--filter", "label=aisb.base-ref="+p.ref, "--filter", "label=aisb.kind=sandbox"); made != "" {
		p.T.Errorf("%s: %s is there", after, made)
	}
	entries, err := os.ReadDir(filepath.Join(p.cache, "ai-sandbox", "build"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.T.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			p.T.Errorf("%s: %s is kept", after, e.Name())
		}
	}
}

// publishPi is a pi of a version that the registry has, with what it depends on.
func (p *npmBox) publishPi(version string) {
	deps := func(name string) map[string]any { return map[string]any{name: version} }
	noise := make([]byte, 1<<20) // so that there is something to break off in
	for r, i := rand.New(rand.NewPCG(1, 2)), 0; i < len(noise); i++ {
		noise[i] = byte(r.Uint32())
	}
	p.npm.publish("left", version, nil, map[string]string{"index.js": "module.exports = '" + version + "'\n", "noise": string(noise)})
	p.npm.publish("left-linux", version, map[string]any{"os": []string{"linux"}, "cpu": []string{"x64", "arm64"}}, map[string]string{"noise": string(noise)})
	p.npm.publish(agenttest.Of(p.T, "pi").Package, version, map[string]any{"dependencies": deps("left"), "optionalDependencies": deps("left-linux"),
		"engines": map[string]any{"node": ">=20"}, "bin": map[string]any{"pi": "cli.js"}},
		map[string]string{"cli.js": "#!/usr/bin/env node\nconsole.log('pi', require('left'))\n"})
}

// A package that was tampered with, a download that breaks off, a registry that fails,
// with the real npm: each ends the build, which says why, and nothing is kept of it. npm
// itself is content where that happens to an optional package.
func TestBadPackages(t *testing.T) {
	t.Parallel()
	p := newNPMBox(t)
	p.publishPi(oldHarness)
	p.found("pi")
	tarball := func(name string) string { return "/" + name + "/-" }
	evil := packNPM(t, map[string]any{"name": "left", "version": oldHarness}, map[string]string{"index.js": "module.exports = 'evil'\n"})
	other := func(name string) string {
		return "what the npm registry has as " + name + "@" + oldHarness + " is not the package that the lock file has the hash of"
	}
	for _, c := range []struct {
		name, at string
		change   func(*answer)
		want     string
	}{
		{"another byte", tarball("left"), anotherByte, other("left")},
		{"another package", "/left", func(a *answer) {
			if bytes.HasPrefix(a.body, []byte("{")) { // the list agrees with it
				honest, err := json.Marshal(p.npm.packages["left"][0].manifest["dist"])
				dist, err2 := json.Marshal(distOf(evil, p.npm.URL+"/left/-/"+oldHarness+".tgz"))
				if err = errors.Join(err, err2); err != nil || !bytes.Contains(a.body, honest) {
					t.Errorf("%v: %s", err, a.body)
				}
				a.body = bytes.Replace(a.body, honest, dist, 1)
				return
			}
			a.body = evil
		}, other("left")},
		{"half a package", tarball("left"), half, other("left")},
		{"a download that breaks off", tarball("left"), breakOff, "a download from the npm registry broke off ("},
		{"500 for a package", tarball("left"), fails, "the npm registry answers 500 Internal Server Error for " + p.npm.URL + "/left/-/" + oldHarness + ".tgz"},
		{"500 for the list", "/left", func(a *answer) {
			if bytes.HasPrefix(a.body, []byte("{")) {
				fails(a)
			}
		}, "the npm registry answers 500 Internal Server Error for " + p.npm.URL + "/left"},
		{"another byte in an optional one", tarball("left-linux"), anotherByte, other("left-linux")},
		{"500 for an optional one", tarball("left-linux"), fails, "the npm registry did not serve left-linux, which npm left out"},
	} {
		p.npm.spoil(c.at, c.change)
		r := p.Run("build")
		if r.Code != 1 || !strings.Contains(r.Err, "pi with its packages: "+c.want) || !strings.Contains(r.Err, "nothing of it is kept") {
			t.Errorf("%s: want %q: %s", c.name, c.want, r)
		}
		p.nothingKept(c.name)
	}
	// The control: the same registry, as it is.
	p.npm.mend()
	p.OK("build")
	if !slices.ContainsFunc(madeAnew(p.logs()), func(step string) bool { return strings.Contains(step, ": pi with its packages") }) {
		t.Errorf("something was kept of a build that failed: %s", drive.Tail(p.logs()))
	}
	has(t, p.OK("--net", "none", "--", "pi"), 0, "pi "+oldHarness)
}

// Of all packages in the image, only those on the list have their scripts run, whatever
// the base says of npm.
func TestInstallScripts(t *testing.T) {
	t.Parallel()
	p := newNPMBox(t)
	ran := func(name string) string {
		return `require("fs").writeFileSync((require("fs").existsSync("/opt/may") ? "/tmp" : "/opt") + "/ran-` + name + `", process.env.npm_lifecycle_event ?? "")` + "\n"
	}
	scripts := map[string]any{"preinstall": "node run.cjs", "install": "node run.cjs", "postinstall": "node run.cjs", "prepare": "node run.cjs"}
	node := map[string]any{"node": ">=20"}
	claude := agenttest.Of(p.T, "claude").Package
	// With a file of this name and no script, npm would run node-gyp.
	p.npm.publish("gyp", oldHarness, nil, map[string]string{"binding.gyp": "{'targets': [{'target_name': 'x', 'variables': {'y': '<!(touch /opt/ran-gyp)'}}]}\n"})
	p.npm.publish("off", oldHarness, map[string]any{"scripts": scripts}, map[string]string{"run.cjs": ran("off")})
	p.npm.publish(agenttest.Of(p.T, "pi").Package, oldHarness, map[string]any{"scripts": scripts, "dependencies": map[string]any{"off": oldHarness, "gyp": oldHarness}, "engines": node,
		"bin": map[string]any{"pi": "cli.js"}}, map[string]string{"run.cjs": ran("pi"), "cli.js": "#!/usr/bin/env node\n"})
	p.npm.publish(claude, oldHarness, map[string]any{"scripts": map[string]any{"postinstall": "node run.cjs"}, "dependencies": map[string]any{"off": oldHarness}, "engines": node,
		"bin": map[string]any{"claude": "cli.js"}}, map[string]string{
		"run.cjs": ran("claude") + `require("fs").writeFileSync("cli.js", "#!/usr/bin/env node\nconsole.log('` + oldHarness + `')\n")` + "\n",
		"cli.js":  "#!/usr/bin/env node\nconsole.log('its script was not run')\n",
	})
	p.found("pi")
	p.found("claude")
	set := []string{"--harness-packages", "pi,claude"}
	p.OK(append([]string{"build"}, set...)...)
	has(t, p.OK(append(set, "--net", "none", "--", "sh", "-c", "echo $(cd /opt; ls -d ran-*; cat ran-*); claude")...), 0, "ran-claude postinstall\n"+oldHarness+"\n")
	// The control: npm runs each of the others, where it is let.
	p.OK(append(set, "--net", "none", "--", "sh", "-c", "ls /tmp/ran-* && exit 1; cp -R /opt/aisb/harness/pi /tmp/pi; cd /tmp/pi; "+
		`sed -i s,/opt/may,/tmp/pi, node_modules/*/run.cjs node_modules/@*/*/run.cjs; HOME=/tmp npm rebuild --cache=/tmp/npm off `+agenttest.Of(p.T, "pi").Package+`; ls /tmp/ran-off /tmp/ran-pi`)...)
}

// A newer Node and a newer agent are there: a check says it, an update brings both with
// every package anew, and one that fails changes nothing.
func TestHarnessIsUpdated(t *testing.T) {
	t.Parallel()
	const newer = "99.1.0"
	p := newNPMBox(t)
	module, nodeOne, nodeTwo := agenttest.Of(p.T, "pi").Package, nodeLine(t, "998"), nodeLine(t, "999")
	p.publishPi(oldHarness)
	p.found("pi")
	p.OK("build")
	first := tagOf(t, p.Box)
	inside := func(want ...string) {
		t.Helper()
		has(t, p.OK("--net", "none", "--", "sh", "-c", "node --version; pi; cat /etc/aisb/manifest.txt /etc/aisb/sbom.cdx.json"), 0, want...)
	}
	inside("v"+nodeOne+"\npi "+oldHarness+"\n", "npm "+module+" "+oldHarness+"\n", "node "+nodeOne+"\n")
	type change struct{ Kind, Image, Name, From, To string }
	changes := func(code int, args ...string) map[string]string {
		t.Helper()
		r := p.Run(append(args, "--json")...)
		var out struct{ Changes []change }
		if err := json.Unmarshal([]byte(r.Out), &out); err != nil || r.Code != code {
			t.Fatalf("want exit code %d: %v: %s", code, err, r)
		}
		m := map[string]string{}
		for _, c := range out.Changes {
			m[c.Kind+" "+c.Name] = c.From + " -> " + c.To
		}
		return m
	}
	same := func(what string, got, want map[string]string) {
		t.Helper()
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v", what, got)
		}
	}
	same("before there is anything newer", changes(0, "update", "--check"), nil)
	has(t, p.Run("update", "--check"), 0, "nothing is newer than what is there")

	p.releaseNode(nodeTwo)
	p.publishPi(newer)
	named := map[string]string{"node node": nodeOne + " -> " + nodeTwo, "harness pi": oldHarness + " -> " + newer}
	same("a check", changes(1, "update", "--check"), named)
	has(t, p.Run("update", "--check"), 1, "node     node: "+nodeOne+" -> "+nodeTwo+"\n", "harness  pi: "+oldHarness+" -> "+newer+"\n")
	// Neither a build nor a start takes it over by itself.
	stays := func(what string) {
		t.Helper()
		if p.OK("build"); tagOf(t, p.Box) != first {
			t.Errorf("%s: %s is now %s", what, first, tagOf(t, p.Box))
		}
	}
	stays("a check")
	// An update that fails has changed nothing.
	for _, c := range []struct {
		name, at string
		change   func(*answer)
		want     string
	}{
		{"another byte", "/" + module + "/-/" + newer + ".tgz", anotherByte, "pi with its packages: what the npm registry has as " + module + "@" + newer + " is not the package"},
		{"500 for the list", "/" + module, fails, "ask for the newest pi: the npm registry answers 500 Internal Server Error for " + p.npm.URL + "/"},
	} {
		p.npm.spoil(c.at, c.change)
		has(t, p.Run("update"), 1, c.want)
		stays(c.name)
	}
	has(t, p.Run("update", "--check"), 2, "ask for the newest pi: the npm registry answers 500") // which is no "nothing would change"
	p.npm.mend()

	before := time.Now()
	brought := maps.Clone(named)
	for _, name := range []string{module, "left", "left-linux"} {
		brought["npm "+name] = oldHarness + " -> " + newer
	}
	same("an update", changes(0, "update"), brought)
	second := tagOf(t, p.Box)
	if second == first {
		t.Errorf("%s is still the image", first)
	}
	log, err := os.ReadFile(filepath.Join(p.state, "ai-sandbox", "images", "sandbox-"+strings.TrimPrefix(second, "localhost/ai-sandbox:")+".log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{": Debian packages;", ": Node;", ": pi with its packages;"} {
		if !slices.ContainsFunc(madeAnew(string(log)), func(s string) bool { return strings.Contains(s, step) }) {
			t.Errorf("the step %q was taken from before: %s", step, drive.Tail(string(log)))
		}
	}
	inside("v"+nodeTwo+"\npi "+newer+"\n", "npm "+module+" "+newer+"\n", "npm left "+newer+"\n", "node "+nodeTwo+"\n", `"purl": "pkg:npm/left@`+newer+`"`)
	label := func(name string) string {
		return strings.TrimSpace(drive.Output(t, "podman", "image", "inspect", "--format", `{{index .Labels "`+name+`"}}`, second))
	}
	if node, pi := label("aisb.node"), label("aisb.harness.pi"); node != nodeTwo || pi != newer {
		t.Errorf("the labels say node %s and pi %s", node, pi)
	}
	if asked, err := time.Parse(image.PackagesForm, label("aisb.packages")); err != nil || asked.Before(before.Truncate(time.Second)) {
		t.Errorf("the packages are of %s, %v", label("aisb.packages"), err)
	}
	has(t, p.Run("inspect", "--offline"), 0, "label        aisb.node="+nodeTwo+"\n", "label        aisb.harness.pi="+newer+"\n", "package      npm "+module+" "+newer+"\n")
	same("a check behind it", changes(0, "update", "--check"), nil)
	has(t, p.Run("update", "--check"), 0, "nothing is newer than what is there")
	// And it stays, with nobody there to ask.
	p.node.Close()
	p.npm.Close()
	has(t, p.Run("build"), 0, second)
}
