//go:build e2e

package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/tests/e2e/drive"

	"ai-sandbox/tests/e2e/internet"
	"ai-sandbox/tests/schema"
)

// debScript makes a package aisb-probe of a version at /probe.deb.
func debScript(version string) string {
	return `mkdir -p /probe/DEBIAN && printf 'Package: aisb-probe\nVersion: ` + version + `\nArchitecture: all\nMaintainer: tests <tests@example.com>\nDescription: of the tests\n' >/probe/DEBIAN/control && ` +
		`dpkg-deb -b /probe /probe.deb >&2`
}

// An aptRepo is a mirror for apt, on the far side.
type aptRepo struct {
	t   *testing.T
	dir string
	url string
}

func newAptRepo(t *testing.T, token string) *aptRepo {
	t.Helper()
	r := &aptRepo{t: t, dir: filepath.Join(w.home, "e2e", "files", "apt-"+token), url: "http://" + internet.Allowed + "/files/apt-" + token}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(t, r.dir) })
	r.index("")
	return r
}

func (r *aptRepo) index(packages string) {
	r.t.Helper()
	release := fmt.Sprintf("Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n %x %d Packages\n", sha256.Sum256([]byte(packages)), len(packages))
	for name, text := range map[string]string{"Packages": packages, "Release": release} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
}

// add makes a version of the package there, in a container of an image.
func (r *aptRepo) add(image, version string) {
	r.t.Helper()
	cmd := exec.Command("podman", "run", "--rm", "--network=none", "--entrypoint=/bin/sh", image, "-c", debScript(version)+" && cat /probe.deb")
	deb, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("make a package: %v", err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "probe.deb"), deb, 0o644); err != nil {
		r.t.Fatal(err)
	}
	r.index(fmt.Sprintf("Package: aisb-probe\nVersion: %s\nArchitecture: all\nMaintainer: tests <tests@example.com>\nDescription: of the tests\nFilename: ./probe.deb\nSize: %d\nSHA256: %x\n",
		version, len(deb), sha256.Sum256(deb)))
}

// A fixed package is in its mirror, and the base did not move: a check says it, an
// update brings it, and later builds keep it. What a session stood on before can still
// be told, also when its images are gone.
func TestUpdate(t *testing.T) {
	t.Parallel()
	p := newBareBox(t)
	repo := newAptRepo(t, p.Token)
	// The tests' own image, in which a build finds nearly all packages installed.
	id := regexp.MustCompile(`"id": ?"([0-9a-f]{64})"`).FindStringSubmatch(readOne(t, filepath.Join(w.home, "e2e", "state", "ai-sandbox", "images",
		"sandbox-"+strings.TrimPrefix(tagOf(t, newBox(t)), "localhost/ai-sandbox:")+".json")))
	if id == nil {
		t.Fatal("no record of the tests' image")
	}
	p.base = "FROM " + id[1] + "\nRUN rm -rf /usr/bin/fd /usr/local/bin/pi /opt/aisb /etc/aisb; " + debScript("1.0") +
		" && dpkg -i /probe.deb && rm -rf /probe /probe.deb && echo 'deb [trusted=yes] " + repo.url + " ./' >/etc/apt/sources.list.d/probe.list\n" +
		"LABEL aisb.recipe= aisb.base-ref= aisb.kind=\n"
	base := p.push("one")
	first := p.OK("build").Out
	tag := regexp.MustCompile(`localhost/ai-sandbox:[0-9a-f]{12}`).FindString(first)
	version := func(want string) {
		t.Helper()
		r := p.OK("--net", "none", "--", "dpkg-query", "-W", "-f", "${Version}", "aisb-probe")
		if r.Out != want {
			t.Errorf("version %q, not %q", r.Out, want)
		}
	}
	version("1.0")
	p.OK("--report", "r.json", "--allow", p.Host("ok.test"), "--", "true")
	session := regexp.MustCompile(`"session": ?"([0-9a-f]{12})"`).FindStringSubmatch(readOne(t, filepath.Join(p.Dir, "r.json")))
	if session == nil {
		t.Fatal("the report names no session")
	}

	type change struct{ Kind, Image, Name, From, To string }
	changes := func(r drive.Result) []change {
		t.Helper()
		var out struct{ Changes []change }
		if err := json.Unmarshal([]byte(r.Out), &out); err != nil {
			t.Fatalf("%v: %s", err, r)
		}
		return slices.DeleteFunc(out.Changes, func(c change) bool { return c.Name != "aisb-probe" })
	}
	if c := changes(p.Run("update", "--check", "--json")); len(c) != 0 {
		t.Errorf("before there is anything: %+v", c)
	}
	repo.add(tag, "2.0")
	want := []change{{"deb", "gate", "aisb-probe", "1.0", "2.0"}, {"deb", "sandbox", "aisb-probe", "1.0", "2.0"}}
	r := p.Run("update", "--check", "--json")
	if c := changes(r); r.Code != 1 || !slices.Equal(c, want) {
		t.Errorf("a check: %s", r)
	}
	// What the mirror has is not what its list names: nothing is taken over.
	deb := filepath.Join(repo.dir, "probe.deb")
	right, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	wrong := slices.Clone(right)
	wrong[len(wrong)/2] ^= 1
	for why, spoil := range map[string]func() error{
		"Hash Sum mismatch": func() error { return os.WriteFile(deb, wrong, 0o644) },
		" 404 ":             func() error { return os.Remove(deb) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		has(t, p.Run("update"), 1, "Debian packages: ", "apt says: Failed to fetch "+repo.url+"/./probe.deb ", why)
		if again := p.OK("build").Out; again != first {
			t.Errorf("%s changes the images: %s", why, again)
		}
	}
	if err := os.WriteFile(deb, right, 0o644); err != nil {
		t.Fatal(err)
	}
	if again := p.OK("build").Out; again != first {
		t.Errorf("a build brings another image: %s", again)
	}
	version("1.0")
	r = p.Run("update", "--json")
	if c := changes(r); r.Code != 0 || !slices.Equal(c, want) {
		t.Errorf("an update: %s", r)
	}
	version("2.0")
	if got := p.digest(); got != base {
		t.Errorf("the base has moved to %s", got)
	}
	has(t, p.Run("inspect", "--offline"), 0, "package      deb aisb-probe 2.0\n", "label        aisb.packages=")
	if bill := p.OK("--net", "none", "--", "cat", "/etc/aisb/sbom.cdx.json").Out; !strings.Contains(bill, `"purl": "pkg:deb/debian/aisb-probe@2.0?arch=all"`) {
		t.Errorf("the bill of materials has another package: %s", drive.Tail(bill))
	}
	updated := tagOf(t, p.Box)
	gate := regexp.MustCompile(`localhost/ai-sandbox-gate:[0-9a-f]{12}`).FindString(p.OK("build").Out)
	bill := drive.Output(t, "podman", "run", "--rm", "--network=none", "--entrypoint=/bin/cat", gate, "/etc/aisb/sbom.cdx.json")
	if !strings.Contains(bill, `"purl": "pkg:deb/debian/aisb-probe@2.0?arch=all"`) || !strings.Contains(bill, `"purl": "pkg:deb/debian/squid-openssl@`) {
		t.Errorf("the gate's bill of materials: %s", drive.Tail(bill))
	}
	if updated == tag {
		t.Error("the images of before were replaced")
	}
	// Again: all is asked for once more, and the image stays.
	r = p.Run("update")
	has(t, r, 0, "Debian packages", "nothing is newer")
	if again := tagOf(t, p.Box); again != updated {
		t.Errorf("an update without changes leaves %s, not %s", again, updated)
	}
	// What the mirror takes back, no build gets any more.
	repo.add(tag, "1.5")
	r = p.Run("update", "--check", "--json")
	if c := changes(r); r.Code != 1 || !slices.Equal(c, []change{{"deb", "gate", "aisb-probe", "2.0", "1.5"}, {"deb", "sandbox", "aisb-probe", "2.0", "1.5"}}) {
		t.Errorf("a check of what is taken back: %s", r)
	}
	// A mirror that does not answer is no "nothing would change".
	if err := os.Remove(filepath.Join(repo.dir, "Release")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(repo.dir, "Packages")); err != nil {
		t.Fatal(err)
	}
	has(t, p.Run("update", "--check"), 2, "ask for the packages")

	// What a session stood on.
	squid := regexp.MustCompile(`package      deb (squid-openssl \S+)\n`).FindStringSubmatch(p.OK("inspect", "--offline").Out)
	if squid == nil {
		t.Fatal("the gate's image has no squid")
	}
	has(t, p.Run("inspect", "--offline", session[1]), 0, "enforced by  "+squid[1]+"\n", "package      deb aisb-probe 1.0\n", "aisb.recipe=")
	for _, of := range []string{session[1], tag, strings.TrimSuffix(p.ref, ":x") + "@" + base} {
		if err := schema.Documented("../../docs/images.md", "inspect", []byte(p.OK("inspect", "--offline", "--json", of).Out)); err != nil {
			t.Errorf("inspect %s: %v", of, err)
		}
	}
	for _, line := range strings.Fields(first) {
		if !strings.Contains(line, "/") {
			drive.Output(t, "podman", "rmi", "-f", line)
		}
	}
	has(t, p.Run("inspect", "--offline", session[1]), 0, "enforced by  "+squid[1]+"\n", "package      deb aisb-probe 1.0\n", "the image is gone")
	has(t, p.Run("inspect", "--offline", "0123456789ab"), 1, "neither a session in the journal nor an image")
	has(t, p.Run("inspect", "--offline", strings.TrimPrefix(updated, "localhost/ai-sandbox:")), 0, "image        "+updated+"\n")
}

// An update made in one project has moved what another one's images are made of, and
// what those need is not there any more: the next start of the other goes on with the
// images of before, and says so. What the user asks for is not replaced by them.
func TestImagesOfBefore(t *testing.T) {
	t.Parallel()
	p := newPinBox(t)
	far := filepath.Join(w.home, "e2e", "files", "set-"+p.Token)
	if err := os.WriteFile(far, []byte("here\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(t, far) })
	setup := filepath.Join(w.home, "e2e", "setup-"+p.Token)
	t.Cleanup(func() { removeAll(t, setup) })
	if err := os.WriteFile(setup, []byte("#!/bin/bash\nexec 3<>/dev/tcp/"+internet.Allowed+"/80\nprintf 'GET /files/set-"+p.Token+" HTTP/1.0\\r\\n\\r\\n' >&3\ngrep -q ^here <&3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := []string{"AISB_SETUP=" + setup}
	start := []string{"--net", "none", "--", "cat", "/etc/variant"}
	has(t, p.with(other, "build"), 0)
	built := p.with(other, "build").Out
	p.OK("build")

	two := p.push("two")
	if err := os.Remove(far); err != nil { // no build of the other one can do without
		t.Fatal(err)
	}
	has(t, p.Run("update"), 0, " -> "+two)
	has(t, p.Run(start...), 0, "two\n")
	has(t, p.with(other, "build"), 1, "setup script")
	const said = "the images of now could not be built, so those of "
	for _, why := range []string{"setup script", "ai-sandbox build"} { // the second one does not try
		r := p.with(other, slices.Concat([]string{"--report", "r.json"}, start)...)
		has(t, r, 0, "one\n", said, why)
		if strings.Count(r.Err, said) != 1 {
			t.Errorf("it is not said once: %s", r)
		}
	}
	// What the session stood on is known to be those of before.
	session := drive.ReadReport(t, filepath.Join(p.Dir, "r.json")).Session
	id := strings.Fields(built)[1]
	has(t, p.with(other, "inspect", "--offline", session), 0, "id           "+id+"\n", "label        aisb.base-digest="+p.one)
	has(t, p.with(other, "clean", "--images", "--dry-run"), 0)
	if r := p.with(other, "clean", "--images", "--dry-run"); strings.Contains(r.Out, id[:12]) {
		t.Errorf("what a start stands on is not used: %s", r)
	}
	// What is there again makes it whole.
	if err := os.WriteFile(far, []byte("here\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	has(t, p.with(other, "build"), 0)
	if r := p.with(other, start...); r.Code != 0 || r.Out != "two\n" || strings.Contains(r.Err, said) {
		t.Errorf("%s", r)
	}
}
