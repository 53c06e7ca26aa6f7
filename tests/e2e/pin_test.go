//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

// A pinBox is a box with a base of its own in the registry, and with a cache and
// records of its own.
type pinBox struct {
	*drive.Box
	ref   string // of the base: host/path:tag
	state string
	cache string
	base  string   // a Containerfile
	one   string   // the digest that it began with
	extra []string // arguments of the base's build
}

// newPinBox makes it, with a base on which a build takes a moment: nothing is installed
// there, as apt-get and its like do nothing. No layer of it is one of another test's, which
// could go while podman counts on it.
func newPinBox(t *testing.T) *pinBox {
	t.Helper()
	p := newBareBox(t)
	harness := strings.TrimSpace(drive.Output(t, "podman", "image", "inspect", "--format", `{{index .Labels "aisb.harness.pi"}}`, tagOf(t, newBox(t))))
	for name, does := range map[string]string{
		"/usr/bin/apt-get": "", "/usr/sbin/update-ca-certificates": "", "/usr/local/bin/tar": "",
		"/usr/local/bin/node": `case $1 in --version) echo v` + setting(t, "AISB_NODE_VERSION") + `;; esac`,
		"/usr/local/bin/npm":  `case $1 in view) echo ` + harness + `;; esac`,
	} {
		p.base += "RUN printf '%s\\n' '#!/bin/sh' '# " + p.Token + "' '" + does + "' >" + name + "; chmod 755 " + name + "\n"
	}
	p.base = "FROM " + setting(t, "AISB_BASE") + "\n" + p.base
	p.one = p.push("one")
	return p
}

// newBareBox has nothing in the registry.
func newBareBox(t *testing.T) *pinBox {
	t.Helper()
	b := newBox(t)
	p := &pinBox{Box: b, ref: "127.0.0.1:5000/base-" + b.Token + ":x"}
	own := filepath.Join(w.home, "e2e", "pin-"+b.Token)
	p.state, p.cache = filepath.Join(own, "state"), filepath.Join(own, "cache")
	b.Env = []string{"XDG_STATE_HOME=" + p.state, "XDG_CACHE_HOME=" + p.cache, "AISB_BASE=" + p.ref}
	t.Cleanup(func() {
		p.removeImages()
		removeAll(t, own)
	})
	return p
}

// setting is a variable of every ai-sandbox here.
func setting(t *testing.T, name string) string {
	t.Helper()
	for _, e := range w.env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	t.Fatalf("no %s", name)
	return ""
}

// removeImages removes every image on this base, and the base.
func (p *pinBox) removeImages() {
	p.T.Helper()
	for _, filter := range []string{"label=aisb.base-ref=" + p.ref, "reference=" + strings.TrimSuffix(p.ref, ":x")} {
		if ids := strings.Fields(drive.Output(p.T, "podman", "images", "-q", "--no-trunc", "--filter", filter)); len(ids) > 0 {
			drive.Output(p.T, "podman", append([]string{"rmi", "-f"}, slices.Compact(ids)...)...)
		}
	}
}

// push moves the base's tag to another image, and returns that one's digest. Nothing
// of it stays in podman's store.
func (p *pinBox) push(variant string) string {
	p.T.Helper()
	dir := p.T.TempDir()
	text := p.base + "RUN echo " + p.Token + " >/etc/token; echo " + variant + " >/etc/variant\n"
	if err := os.WriteFile(filepath.Join(dir, "Containerfile"), []byte(text), 0o600); err != nil {
		p.T.Fatal(err)
	}
	name := "localhost/base-" + p.Token + ":" + variant
	drive.Output(p.T, "podman", slices.Concat([]string{"build", "-q", "--no-cache", "-t", name}, p.extra, []string{dir})...)
	drive.Output(p.T, "podman", "push", "-q", "--tls-verify=false", "--compression-level=1", "--digestfile", filepath.Join(dir, "digest"), name, p.ref)
	drive.Output(p.T, "podman", "rmi", "-f", name)
	d, err := os.ReadFile(filepath.Join(dir, "digest"))
	if err != nil {
		p.T.Fatal(err)
	}
	return strings.TrimSpace(string(d))
}

// wrap has the base's tag lead to an index with the image in it, and returns the index's
// digest.
func (p *pinBox) wrap() string {
	p.T.Helper()
	list, digestFile := "localhost/list-"+p.Token, filepath.Join(p.T.TempDir(), "digest")
	drive.Output(p.T, "podman", "manifest", "create", list)
	drive.Output(p.T, "podman", "manifest", "add", "--tls-verify=false", list, "docker://"+p.ref)
	drive.Output(p.T, "podman", "manifest", "push", "--all", "--tls-verify=false", "--digestfile", digestFile, list, "docker://"+p.ref)
	drive.Output(p.T, "podman", "manifest", "rm", list)
	d, err := os.ReadFile(digestFile)
	if err != nil {
		p.T.Fatal(err)
	}
	return strings.TrimSpace(string(d))
}

// with is run with further variables.
func (p *pinBox) with(env []string, args ...string) drive.Result {
	p.T.Helper()
	old := p.Env
	p.Env = append(slices.Clone(old), env...)
	defer func() { p.Env = old }()
	return p.Run(args...)
}

// digest is what the policy names as the base's, or "".
func (p *pinBox) digest() string {
	p.T.Helper()
	var policy struct {
		Image struct {
			Digest string `json:"base_digest"`
		}
	}
	if err := json.Unmarshal([]byte(p.OK("--print-policy=json", "--", "true").Out), &policy); err != nil {
		p.T.Fatal(err)
	}
	return policy.Image.Digest
}

// age makes the record of the pin so old.
func (p *pinBox) age(days int) {
	p.T.Helper()
	files, err := filepath.Glob(filepath.Join(p.cache, "ai-sandbox", "base", "*.json"))
	if err != nil {
		p.T.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, ".packages.json") {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			p.T.Fatal(err)
		}
		then := time.Now().Add(-time.Duration(days) * 24 * time.Hour).UTC().Format(time.RFC3339)
		data = regexp.MustCompile(`"resolved": "[^"]*"`).ReplaceAll(data, []byte(`"resolved": "`+then+`"`))
		if err := os.WriteFile(f, data, 0o600); err != nil {
			p.T.Fatal(err)
		}
		return
	}
	p.T.Fatal("there is no pin")
}

// offline are the variables with which ai-sandbox finds no registry, and asks podman
// for no pull.
func (p *pinBox) offline() []string {
	return append(p.noRegistry(), "AISB_BASE_PULL_FALLBACK=0")
}

func (p *pinBox) noRegistry() []string {
	p.T.Helper()
	conf := filepath.Join(p.T.TempDir(), "registries.conf")
	name := strings.TrimSuffix(strings.TrimPrefix(p.ref, "127.0.0.1:5000"), ":x")
	text := "[[registry]]\nprefix = \"127.0.0.1:5000" + name + "\"\nlocation = \"127.0.0.1:1" + name + "\"\ninsecure = true\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		p.T.Fatal(err)
	}
	return []string{"CONTAINERS_REGISTRIES_CONF=" + conf}
}

func has(t *testing.T, r drive.Result, code int, parts ...string) {
	t.Helper()
	if r.Code != code {
		t.Fatalf("want exit code %d: %s", code, r)
	}
	for _, part := range parts {
		if !strings.Contains(r.Out+r.Err, part) {
			t.Errorf("want %q: %s", part, r)
		}
	}
}

// The tag moves in the registry: what is used then is the pin, until that is older
// than its time and the registry answers.
func TestPin(t *testing.T) {
	t.Parallel()
	p := newPinBox(t)
	one := p.one
	has(t, p.Run("--print-policy", "--", "true"), 0, "UNPINNED")
	first := p.OK("build").Out
	if got := p.digest(); got != one {
		t.Fatalf("pinned to %q, and the registry has %s", got, one)
	}
	if name := strings.TrimSuffix(p.ref, ":x") + "@" + one; !strings.Contains(p.OK("--print-containerfile").Out, "FROM "+name+"\n") {
		t.Errorf("it is not built from %s", name)
	}
	variant := func(want string, env ...string) drive.Result {
		t.Helper()
		r := p.with(env, "--net", "none", "--", "cat", "/etc/variant")
		if r.Code != 0 || strings.TrimSpace(r.Out) != want {
			t.Fatalf("want the image on %s: %s", want, r)
		}
		return r
	}
	variant("one")

	two := p.push("two")
	if one == two {
		t.Fatal("the tag has not moved")
	}
	// Younger than its time, the pin counts; and without a time, or with no updates,
	// at any age.
	variant("one")
	if again := p.OK("build").Out; again != first {
		t.Errorf("a second build gives %s, and the first gave %s", again, first)
	}
	p.age(8)
	variant("one", "AISB_BASE_AUTO_UPDATE=0")
	variant("one", "AISB_BASE_TTL_DAYS=-1")
	variant("one", "AISB_BASE_TTL_DAYS=9")
	// Offline, too, and that is said, but not at each start.
	if r := variant("one", p.offline()...); !strings.Contains(r.Err, "stays as pinned on ") {
		t.Errorf("offline, nothing is said: %s", r)
	}
	if r := variant("one", p.offline()...); r.Err != "" {
		t.Errorf("offline again: %s", r)
	}
	if got := p.digest(); got != one {
		t.Errorf("pinned to %s now", got)
	}
	// What would change is said, and nothing is changed.
	r := p.Run("update", "--check", "--json")
	var out struct {
		Changes []struct{ Kind, Name, From, To string }
	}
	if err := json.Unmarshal([]byte(r.Out), &out); err != nil || r.Code != 1 {
		t.Fatalf("%v: %s", err, r)
	}
	if len(out.Changes) == 0 || out.Changes[0].Kind != "base" || out.Changes[0].From != one || out.Changes[0].To != two {
		t.Errorf("a check says %+v", out.Changes)
	}
	if got := p.digest(); got != one {
		t.Errorf("pinned to %s by a check", got)
	}
	has(t, p.Run("inspect"), 0, two+": it has moved")
	// A build that the user asks for, and the next start, ask again.
	has(t, p.Run("build"), 0, "has moved to "+two[:19])
	variant("two")
	if got := p.digest(); got != two {
		t.Errorf("pinned to %s, not to %s", got, two)
	}
	has(t, p.Run("inspect"), 0, "the same", "label        aisb.base-digest="+two)

	// At 0 each build asks, and so does each start.
	p.push("one") // made anew, so it need not be the first one
	variant("one", "AISB_BASE_TTL_DAYS=0")
	// A check without changes.
	r = p.Run("update", "--check")
	has(t, r, 0, "nothing is newer than what is there")
	// An update does, whatever else says that the pin stays, and tells of it.
	three := p.push("three")
	has(t, p.with([]string{"AISB_BASE_AUTO_UPDATE=0"}, "build"), 0)
	variant("one")
	r = p.with([]string{"AISB_BASE_AUTO_UPDATE=0", "AISB_BASE_TTL_DAYS=-1"}, "update")
	has(t, r, 0, "base     "+p.ref+": sha256:", " -> "+three+"\n")
	variant("three")
	has(t, p.Run("inspect"), 0, "  today      the same")
	// What can't be found out is neither yes nor no.
	has(t, p.with(p.offline(), "update", "--check"), 2, "ask the registry")
	has(t, p.with(p.offline(), "update"), 1, "ask the registry")
}

// No registry and no record: the build goes on, and says so wherever it counts.
func TestUnpinned(t *testing.T) {
	t.Parallel()
	p := newPinBox(t)
	drive.Output(t, "podman", "pull", "-q", "--tls-verify=false", p.ref) // a copy on this machine
	r := p.with(p.offline(), "build")
	has(t, r, 0, "the base image is UNPINNED")
	tag := regexp.MustCompile(`localhost/ai-sandbox:[0-9a-f]{12}`).FindString(r.Out)
	if l := drive.Output(t, "podman", "image", "inspect", "--format", `{{index .Labels "aisb.base-digest"}}`, tag); strings.TrimSpace(l) != "UNPINNED" {
		t.Errorf("the label says %s", l)
	}
	has(t, p.with(p.offline(), "--print-policy", "--", "true"), 0, "UNPINNED")
	has(t, p.with(p.offline(), "doctor"), 0, "UNPINNED")
	has(t, p.with(p.offline(), "inspect", "--offline"), 0, "digest     UNPINNED")
	// The next build with a registry pins it.
	has(t, p.Run("build"), 0)
	if p.digest() == "" {
		t.Error("it is not pinned when the registry is there again")
	}
	// The doctor's trial fails: what is called squid in this gate is none.
	has(t, p.Run("doctor"), 1, ", pinned to sha256:", "squid")
}

// Where the registry does not answer ai-sandbox, podman's pull tells the digest:
// the index's, for an image of several architectures.
func TestPullFallback(t *testing.T) {
	t.Parallel()
	p := newPinBox(t)
	index := p.wrap()
	// The control: without it, nothing is known.
	r := p.with(append(p.offline(), "AISB_NODE_MIRROR=http://127.0.0.1:1"), "build")
	has(t, r, 1, "UNPINNED")
	r = p.with(p.noRegistry(), "build")
	has(t, r, 0, "was pulled to find its digest")
	if got := p.digest(); got != index {
		t.Errorf("pinned to %q, and the index is %s", got, index)
	}
	// The registry itself says the same.
	has(t, p.with([]string{"AISB_BASE_TTL_DAYS=0"}, "build"), 0)
	if got := p.digest(); got != index {
		t.Errorf("pinned to %q, and the index is %s", got, index)
	}
}

// Ten starts at once, with nothing there: the work is done once, and all run.
func TestTenStartsAtOnce(t *testing.T) {
	t.Parallel()
	p := newPinBox(t)
	type end struct {
		out []byte
		err error
	}
	ends := make(chan end)
	for range 10 {
		cmd := p.Command(t.Context(), "--net", "none", "--", "cat", "/etc/variant")
		go func() {
			out, err := cmd.CombinedOutput()
			ends <- end{out, err}
		}()
	}
	builders := map[string]int{} // of each image
	for range 10 {
		e := <-ends
		if e.err != nil || !strings.Contains(string(e.out), "one\n") {
			t.Errorf("%v: %s", e.err, drive.Tail(string(e.out)))
		}
		// One build may begin again, when another test removes an image beside it.
		built := regexp.MustCompile(`localhost/\S+: step 1 of`).FindAllString(string(e.out), -1)
		slices.Sort(built)
		for _, s := range slices.Compact(built) {
			builders[s]++
		}
	}
	if len(builders) != 2 {
		t.Errorf("two images were to be built: %v", builders)
	}
	for s, n := range builders {
		if n != 1 {
			t.Errorf("%s was done by %d of them", s, n)
		}
	}
	if d := p.digest(); d == "" {
		t.Error("nothing is pinned")
	}
	// Nothing half-written, and each record whole.
	records := 0
	for _, dir := range []string{p.cache, p.state} {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if strings.HasPrefix(d.Name(), ".tmp") {
				t.Errorf("%s was left", path)
			}
			parent := filepath.Base(filepath.Dir(path))
			if filepath.Ext(path) == ".json" && (parent == "base" || parent == "node" || parent == "images") {
				records++
				if data, err := os.ReadFile(path); err != nil || !json.Valid(data) {
					t.Errorf("%s is %q, %v", path, data, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if records < 3 { // the pin and two images
		t.Errorf("there are %d records", records)
	}
}

// Credentials are podman's, and a registry without TLS is used where the user's
// registries.conf says so.
func TestRegistryCredentials(t *testing.T) {
	t.Parallel()
	const registry = "127.0.0.1:5002"
	b := newBox(t)
	other := filepath.Join(w.home, "e2e", "login-"+b.Token)
	runtime := fmt.Sprintf("%s/login-%s", os.Getenv("XDG_RUNTIME_DIR"), b.Token)
	t.Cleanup(func() {
		for _, p := range find(t, "podman", "system service", runtime) {
			killWait(t, p)
		}
		removeStore(t, other)
		removeStore(t, runtime)
	})
	conf := filepath.Join(other, ".config", "containers")
	for _, d := range []string{conf, runtime, filepath.Join(other, "registry")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// dev, with the password "open": a bcrypt hash.
	write(filepath.Join(other, "htpasswd"), "dev:$2a$04$yyUDUFKhRZZIF7oJoaajauymEvQnyeDOAkhA1eMAbli/cx4.1excm\n")
	write(filepath.Join(other, "registry.yml"), `version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: "`+other+`/registry"}}
http: {addr: "`+registry+`"}
auth: {htpasswd: {realm: tests, path: "`+other+`/htpasswd"}}
`)
	serve := exec.Command("docker-registry", "serve", filepath.Join(other, "registry.yml"))
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		serve.Process.Kill()
		serve.Wait()
	})
	drive.Eventually(t, 20*time.Second, "the registry answers", func() bool {
		out, _ := exec.Command("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "*", "http://"+registry+"/v2/").Output()
		return string(out) == "401"
	})
	base := setting(t, "AISB_BASE")
	ref := registry + "/private:x"
	drive.Output(t, "skopeo", "copy", "-q", "--src-tls-verify=false", "--dest-tls-verify=false", "--dest-creds", "dev:open", "docker://"+base, "docker://"+ref)

	b.Env = []string{"HOME=" + other, "XDG_RUNTIME_DIR=" + runtime, "XDG_STATE_HOME=" + other + "/state", "XDG_CACHE_HOME=" + other + "/cache",
		"XDG_CONFIG_HOME=" + other + "/config", "XDG_DATA_HOME=" + other + "/data", "AISB_BASE=" + ref, "AISB_BASE_PULL_FALLBACK=0"}
	login := func(args ...string) {
		t.Helper()
		cmd := exec.Command("podman", args...)
		cmd.Env = append(os.Environ(), b.Env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("podman %q: %v: %s", args, err, out)
		}
	}
	// Only the question to the registry is of interest: a mirror for Node that is
	// not there ends the build behind it.
	b.Env = append(b.Env, "AISB_NODE_MIRROR=http://127.0.0.1:1")
	ask := func() drive.Result { return b.Run("build") }
	has(t, ask(), 1, "UNPINNED", "HTTP response to HTTPS client")
	write(filepath.Join(conf, "registries.conf"), "[[registry]]\nlocation = \""+registry+"\"\ninsecure = true\n")
	has(t, ask(), 1, "UNPINNED", "authentication required")
	login("login", "-u", "dev", "-p", "open", registry)
	r := ask()
	if r.Code != 1 || strings.Contains(r.Err, "UNPINNED") {
		t.Errorf("with podman's credentials: %s", r)
	}
	if d := b.OK("--print-policy=json", "--", "true").Out; !regexp.MustCompile(`"base_digest": ?"sha256:`).MatchString(d) {
		t.Errorf("it is not pinned: %s", d)
	}
	// Where the variable names the file, podman and we look there and nowhere else;
	// podman's service fetches the base with it, too.
	file := filepath.Join(other, "auth.json")
	login("login", "--authfile", file, "-u", "dev", "-p", "open", registry)
	login("logout", registry)
	removeAll(t, filepath.Join(other, "cache", "ai-sandbox", "base"))
	has(t, ask(), 1, "UNPINNED", "authentication required")
	b.Env = append(b.Env, "REGISTRY_AUTH_FILE="+file)
	if r := ask(); r.Code != 1 || strings.Contains(r.Err, "UNPINNED") {
		t.Errorf("with REGISTRY_AUTH_FILE: %s", r)
	}
	b.Env = append(b.Env, "AISB_NODE_MIRROR="+setting(t, "AISB_NODE_MIRROR"))
	fetches(t, b)
}

// fetches is a build up to the step behind the base's, at which that is there. The
// gate's image, which is the first, has no Node.
func fetches(t *testing.T, b *drive.Box) {
	t.Helper()
	cmd := b.Command(t.Context(), "build")
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said += lines.Text() + "\n"
		if strings.Contains(lines.Text(), ": step 2 of") {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(said, ": step 2 of") {
		t.Errorf("podman did not fetch the base: %v, %s", err, said)
	}
}

// madeAnew are the steps that a build's log does not say to have found done.
func madeAnew(log string) []string {
	var out []string
	for _, s := range regexp.MustCompile(`(?m)^STEP \d+/\d+: (.*)$`).FindAllStringSubmatch(log, -1) {
		rest := strings.SplitN(log, s[0], 2)[1]
		rest = strings.SplitN(rest, "\nSTEP ", 2)[0]
		if !strings.HasPrefix(s[1], "FROM ") && !strings.Contains(rest, "Using cache") {
			out = append(out, s[1])
		}
	}
	return out
}

// lastTry is the end of a build's log, where it was tried again.
func lastTry(log string) string { return log[max(0, strings.LastIndex(log, "STEP 1/")):] }

// A changed entrypoint makes the last layers anew and none below.
func TestLayersStay(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	state := filepath.Join(w.home, "e2e", "state-"+b.Token)
	b.Env = []string{"XDG_STATE_HOME=" + state}
	t.Cleanup(func() { removeAll(t, state) })
	b.OK("build")
	b.Bin = filepath.Join(w.bin, "ai-sandbox-testhook")
	b.OK("build")
	logs, err := filepath.Glob(filepath.Join(state, "ai-sandbox", "images", "*.log"))
	if err != nil || len(logs) != 4 {
		t.Fatalf("%q, %v", logs, err)
	}
	for _, log := range logs {
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		want := 1 // the packages
		if strings.HasPrefix(filepath.Base(log), "sandbox-") {
			want = 5 // those, Node, an agent's two steps and the files for /etc
		}
		if n := strings.Count(string(data), "Using cache"); n < want {
			t.Errorf("%s: only %d layers were there: %s", filepath.Base(log), n, drive.Tail(string(data)))
		}
		for _, step := range madeAnew(lastTry(string(data))) {
			if !strings.Contains(step, "aisb-entrypoint") && !strings.Contains(step, "sbom.json") && !strings.HasPrefix(step, "LABEL ") {
				t.Errorf("%s makes a step anew: %.60s", filepath.Base(log), step)
			}
		}
	}
}

// A base that its registry serves changed: neither another manifest for the pinned digest
// nor another layer is taken, nor half of one, and nothing is built.
func TestTamperedBase(t *testing.T) {
	t.Parallel()
	p := newPinBox(t)
	// Pinned, and no further: there is no Node.
	has(t, p.with([]string{"AISB_NODE_MIRROR=http://127.0.0.1:1"}, "build"), 1, "connection refused")
	if got := p.digest(); got != p.one {
		t.Fatalf("pinned to %q, and the registry has %s", got, p.one)
	}
	var manifest struct{ Layers []struct{ Digest string } }
	if err := json.Unmarshal([]byte(readOne(t, registryBlob(p.one))), &manifest); err != nil || len(manifest.Layers) < 2 {
		t.Fatalf("%d layers, %v", len(manifest.Layers), err)
	}
	layer := manifest.Layers[len(manifest.Layers)-1].Digest // of this base alone
	for _, c := range []struct {
		name, file string
		change     func([]byte) []byte
	}{
		{"a layer with another byte", layer, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }},
		{"half a layer", layer, func(b []byte) []byte { return b[:len(b)/2] }},
		{"a manifest with another byte", p.one, func(b []byte) []byte { return append(b, ' ') }},
		{"no manifest", p.one, func([]byte) []byte { return nil }},
	} {
		right, err := os.ReadFile(registryBlob(c.file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(registryBlob(c.file), c.change(slices.Clone(right)), 0o644); err != nil {
			t.Fatal(err)
		}
		r := p.Run("build")
		if r.Code != 1 || !strings.Contains(r.Err, "step 1 of") {
			t.Errorf("%s: %s", c.name, r)
		}
		if err := os.WriteFile(registryBlob(c.file), right, 0o644); err != nil {
			t.Fatal(err)
		}
		if made := drive.Output(t, "podman", "images", "-aq", "--filter", "label=aisb.base-ref="+p.ref); made != "" {
			t.Errorf("%s: %s is there", c.name, made)
		}
		if got := p.digest(); got != p.one {
			t.Errorf("%s: pinned to %s now", c.name, got)
		}
	}
	// The control.
	has(t, p.Run("build"), 0)
}
