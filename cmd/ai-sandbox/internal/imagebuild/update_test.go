package imagebuild

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

// harnessAt makes the scripts answer with a version of a harness, which needs a
// version of Node.
func (w *world) harnessAt(t *testing.T, harness, version, node string) {
	t.Helper()
	module := agent(t, harness).Module
	marshal := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	deps := map[string]any{module: version}
	w.builder.scripts[agent(t, harness).NewestScript()] = version + "\n"
	w.builder.scripts[agent(t, harness).LockScript()] = marshal([]string{
		marshal(map[string]any{"dependencies": deps}),
		marshal(map[string]any{"packages": map[string]any{
			"": map[string]any{"dependencies": deps},
			"node_modules/" + module: map[string]any{"version": version, "integrity": "sha512-x",
				"engines": map[string]any{"node": ">=" + node}},
		}}),
	})
}

func newUpdateWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.builder.scripts = map[string]string{image.UpgradesScript: "Reading package lists...\n"}
	w.harnessAt(t, "pi", agent(t, "pi").Version, "22.19.0")
	return w
}

func (w *world) update(t *testing.T) Outcome {
	t.Helper()
	out, err := w.req.Update(t.Context(), w.builder, w.opt)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (w *world) check(t *testing.T) Outcome {
	t.Helper()
	if err := os.MkdirAll(w.req.CacheDir, 0o700); err != nil {
		t.Fatal(err)
	}
	before := files(t, w.req.CacheDir+"/..")
	out, err := w.req.Check(t.Context(), w.builder, w.opt)
	if err != nil {
		t.Fatal(err)
	}
	if after := files(t, w.req.CacheDir+"/.."); !reflect.DeepEqual(before, after) {
		t.Errorf("a check changed files: %q, %q", before, after)
	}
	return out
}

// The packages are asked for anew though the base has not moved; and what is the same
// afterwards stays the same image.
func TestUpdatePackages(t *testing.T) {
	w := newUpdateWorld(t)
	old := w.ensure(t)
	if out := w.check(t); len(out.Changes) != 0 {
		t.Errorf("a check says %+v", out.Changes)
	}
	out := w.update(t)
	if len(out.Changes) != 0 || len(w.builder.builds) != 4 {
		t.Errorf("%d builds, %+v", len(w.builder.builds), out.Changes)
	}
	if !strings.Contains(w.builder.builds[3], ": asked for anew on ") {
		t.Errorf("the packages came from the layers that were there:\n%s", w.builder.builds[3])
	}
	if p := w.ensure(t); p.Sandbox.ID != old.Sandbox.ID || p.Gate.ID != old.Gate.ID || len(w.builder.images) != 2 {
		t.Errorf("an update without changes leaves %d images, and runs stand on %s", len(w.builder.images), p.Sandbox.Ref)
	}
	w.builder.scripts[image.UpgradesScript] = "Inst libssl3t64 [3.5.1-1] (3.5.1-1+deb13u1 Debian-Security:13 [amd64])\n"
	want := []image.Change{
		{Kind: "deb", Image: "gate", Name: "libssl3t64", From: "3.5.1-1", To: "3.5.1-1+deb13u1"},
		{Kind: "deb", Image: "sandbox", Name: "libssl3t64", From: "3.5.1-1", To: "3.5.1-1+deb13u1"},
	}
	if out := w.check(t); !reflect.DeepEqual(out.Changes, want) {
		t.Errorf("a check says %+v", out.Changes)
	}
	w.builder.packages = "deb libssl3t64 3.5.1-1+deb13u1 amd64\n"
	out = w.update(t)
	if !reflect.DeepEqual(out.Changes, want) {
		t.Errorf("an update says %+v", out.Changes)
	}
	p := w.ensure(t)
	if p.Sandbox.ID == old.Sandbox.ID || out.Images["sandbox"].ID != p.Sandbox.ID || out.Images["gate"].Ref != p.Gate.Ref || p.BaseDigest != old.BaseDigest {
		t.Errorf("runs stand on %+v, and the update made %+v", p.Sandbox.Ref, out.Images)
	}
	// Those that a session may run on stay.
	if !w.builder.images[old.Sandbox.ID] || !w.builder.images[old.Gate.ID] {
		t.Error("the images of before are gone")
	}
	// On another base it is as if nothing had been asked.
	w.req.Base = "registry.example/debian:x"
	if p := w.ensure(t); strings.Contains(p.Sandbox.Containerfile, "asked for anew") {
		t.Error("the moment counts for another base")
	}
}

// What an upgrade of the image leaves as it is, and a build does not: a version that no
// mirror has any more is a change, unless the base has it, or it can't be told.
func TestCheckOfStays(t *testing.T) {
	table := func(name, candidate, table string) string {
		return name + ":\n  Installed: 1.5\n  Candidate: " + candidate + "\n  Version table:\n" + table
	}
	const there, mirror = " *** 1.5 100\n        100 /var/lib/dpkg/status\n", "        500 http://deb.example/debian trixie/main amd64 Packages\n"
	gone := table("curl", "1.5", there+"     1.4 500\n"+mirror)
	changes := func(kinds ...image.Kind) []image.Change {
		out := []image.Change{}
		for _, kind := range kinds {
			out = append(out, image.Change{Kind: "deb", Image: kind, Name: "curl", From: "1.5", To: "1.4"})
		}
		return out
	}
	base := "Package: curl\nStatus: install ok installed\nArchitecture: amd64\nVersion: "
	for name, c := range map[string]struct {
		said   string
		base   string // what the base has of it; "": it is not there
		change func(*Request)
		want   []image.Change
		notes  string
	}{
		"nothing":           {"", base + "1.0\n", nil, changes(), ""},
		"gone":              {gone, base + "1.0\n", nil, changes(image.KindGate, image.KindSandbox), ""},
		"the base has it":   {gone, base + "1.5\n", nil, changes(), ""},
		"no base":           {gone, "", nil, changes(), "no mirror has curl 1.5 of the sandbox image any more"},
		"a script":          {gone, base + "1.0\n", func(r *Request) { r.Setup = []byte("echo made\n") }, changes(image.KindGate), "no mirror has curl 1.5 of the sandbox image any more"},
		"kept back":         {table("curl", "1.6", "     1.6 500\n"+mirror+there), base + "1.5\n", nil, changes(), "curl stays at 1.5 in the gate image, where something keeps 1.6 back"},
		"what a user chose": {table("curl", "1.6", "     1.6 500\n"+mirror+there), base + "1.5\n", func(r *Request) { r.Apt = []string{"curl=1.5"} }, changes(), "in the gate image"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newUpdateWorld(t)
			if c.change != nil {
				c.change(&w.req)
			}
			p := w.ensure(t)
			at, err := p.BaseRef.Pin(p.BaseDigest)
			if err != nil {
				t.Fatal(err)
			}
			w.builder.images[at.String()], w.builder.manifest[at.String()] = c.base != "", c.base
			w.builder.scripts[image.UpgradesScript] = "Reading package lists...\n" + c.said
			out := w.check(t)
			if !reflect.DeepEqual(out.Changes, c.want) {
				t.Errorf("a check says %+v", out.Changes)
			}
			notes := strings.Join(out.Notes, "\n")
			if !strings.Contains(notes, c.notes) || c.notes == "" && strings.Contains(notes, "curl") || name == "what a user chose" && strings.Contains(notes, "sandbox") {
				t.Errorf("it notes %q", out.Notes)
			}
		})
	}
}

// Where podman has lost the images, those of an update stay, though nothing else is new.
func TestUpdateOfLostImages(t *testing.T) {
	for name, lose := range map[string]func(Plan) []Image{
		"both":       func(p Plan) []Image { return []Image{p.Sandbox, p.Gate} },
		"the gate's": func(p Plan) []Image { return []Image{p.Gate} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newUpdateWorld(t)
			old := w.ensure(t)
			for _, img := range lose(old) {
				delete(w.builder.images, img.ID)
			}
			out := w.update(t)
			if len(out.Changes) != len(lose(old)) || out.Changes[0].Kind != "image" || out.Images["gate"].ID == "" {
				t.Errorf("an update says %+v", out)
			}
			builds := len(w.builder.builds)
			if p := w.ensure(t); p.Gate.ID != out.Images["gate"].ID || p.Sandbox.ID != out.Images["sandbox"].ID || len(w.builder.builds) != builds {
				t.Errorf("runs stand on %s after %d more builds", p.Gate.Ref, len(w.builder.builds)-builds)
			}
		})
	}
}

// An update that comes to no end, or to nothing new, leaves no image and no record; the
// log of the build that failed is kept.
func TestUpdateLeavesNothing(t *testing.T) {
	w := newUpdateWorld(t)
	w.ensure(t)
	images, before := len(w.builder.images), files(t, w.req.StateDir)
	w.update(t)
	if after := files(t, w.req.StateDir); len(w.builder.images) != images || !reflect.DeepEqual(before, after) {
		t.Errorf("nothing new: %d images, %q", len(w.builder.images), after)
	}
	w.builder.onBuild = func(_ context.Context, b Build) error {
		if strings.HasPrefix(b.Mark, "sandbox-") {
			w.builder.unnamed = append(w.builder.unnamed, b.Mark) // the steps before
			return errors.New("exit status 9")
		}
		return nil
	}
	if _, err := w.req.Update(t.Context(), w.builder, w.opt); err == nil {
		t.Error("a broken build is no error")
	}
	// No later update has use for the layers, as it is of another moment.
	if len(w.builder.unnamed) > 0 || len(w.builder.removed) != 1 {
		t.Errorf("a broken build leaves layers of %q", w.builder.unnamed)
	}
	after := files(t, w.req.StateDir)
	if len(w.builder.images) != images || len(after) != len(before)+1 || !strings.Contains(strings.Join(after, " "), ".log") {
		t.Errorf("a broken build: %d images, %q", len(w.builder.images), after)
	}
	w.builder.onBuild = nil
	// With nothing built before, a newer harness costs a second image, and the first is
	// not kept.
	w = newUpdateWorld(t)
	w.harnessAt(t, "pi", "1.7.0", "22.19.0")
	w.update(t)
	if len(w.builder.images) != 2 {
		t.Errorf("a first update leaves %d images", len(w.builder.images))
	}
}

func TestUpdateBase(t *testing.T) {
	w := newUpdateWorld(t)
	w.req.KeepPin, w.req.TTLDays = true, -1 // update is asked for
	old := w.ensure(t)
	w.leadsTo(digestB)
	if out := w.check(t); len(out.Changes) != 1 || out.Changes[0] != (image.Change{Kind: "base", Name: image.DefaultBase, From: string(digestA), To: string(digestB)}) {
		t.Errorf("a check says %+v", out.Changes)
	}
	// A build that fails leaves all as it was.
	w.builder.onBuild = func(context.Context, Build) error { return errors.New("exit status 9") }
	if _, err := w.req.Update(t.Context(), w.builder, w.opt); err == nil {
		t.Error("a broken build is no error")
	}
	w.builder.onBuild = nil
	if p := w.ensure(t); p.Sandbox.ID != old.Sandbox.ID {
		t.Errorf("after an update that failed, runs stand on %s", p.BaseDigest)
	}
	if out := w.update(t); len(out.Changes) != 1 || out.Changes[0].Kind != "base" {
		t.Errorf("an update says %+v", out.Changes)
	}
	if p := w.ensure(t); p.BaseDigest != digestB || !strings.Contains(p.Gate.Containerfile, "asked for anew") {
		t.Errorf("runs stand on %s", p.BaseDigest)
	}
	// On a base that moves later everything is new anyway, and the same for everyone.
	later := *w
	later.req.CacheDir, later.req.KeepPin, later.req.TTLDays = t.TempDir(), false, 0
	if err := os.CopyFS(later.req.CacheDir, os.DirFS(w.req.CacheDir)); err != nil {
		t.Fatal(err)
	}
	later.leadsTo(digest.FromString("c"))
	if p := later.ensure(t); p.BaseDigest == digestB || strings.Contains(p.Gate.Containerfile, "asked for anew") {
		t.Errorf("runs stand on %s, of packages %q", p.BaseDigest, p.in.packages)
	}
	// Nobody answers: an error, and no change.
	w.leadsTo("")
	if _, err := w.req.Update(t.Context(), w.builder, w.opt); !errors.Is(err, errOffline) {
		t.Errorf("an update offline: %v", err)
	}
	if _, err := w.req.Check(t.Context(), w.builder, w.opt); !errors.Is(err, errOffline) {
		t.Errorf("a check offline: %v", err)
	}
}

func TestUpdateHarness(t *testing.T) {
	w := newUpdateWorld(t)
	w.ensure(t)
	w.harnessAt(t, "pi", "1.7.0", "22.19.0")
	want := image.Change{Kind: "harness", Name: "pi", From: agent(t, "pi").Version, To: "1.7.0"}
	if out := w.check(t); len(out.Changes) != 1 || out.Changes[0] != want {
		t.Errorf("a check says %+v", out.Changes)
	}
	if out := w.update(t); len(out.Changes) != 1 || out.Changes[0] != want {
		t.Errorf("an update says %+v", out.Changes)
	}
	p := w.ensure(t)
	if p.Sandbox.Labels["aisb.harness.pi"] != "1.7.0" || !strings.Contains(string(p.Sandbox.Files["harness/pi/package.json"].Data), "1.7.0") {
		t.Errorf("runs stand on %v", p.Sandbox.Labels)
	}
	// An older one, and one that this Node does not run, change nothing.
	w.harnessAt(t, "pi", "1.0.0", "22.19.0")
	if out := w.update(t); len(out.Changes) != 0 {
		t.Errorf("an older harness: %+v", out)
	}
	w.harnessAt(t, "pi", "1.8.0", "99.0.0")
	if out := w.check(t); len(out.Changes) != 0 || !strings.Contains(strings.Join(out.Notes, "\n"), "needs node 99.0.0") {
		t.Errorf("a check of a harness for another Node: %+v", out)
	}
	if out := w.update(t); len(out.Changes) != 0 || len(out.Notes) == 0 || !strings.Contains(strings.Join(out.Notes, "\n"), "needs node 99.0.0") {
		t.Errorf("a harness for another Node: %+v", out)
	}
	if p := w.ensure(t); p.Sandbox.Labels["aisb.harness.pi"] != "1.7.0" {
		t.Errorf("runs stand on %v", p.Sandbox.Labels)
	}
	// With nothing built, the first build has the newest.
	w = newUpdateWorld(t)
	w.harnessAt(t, "pi", "1.7.0", "22.19.0")
	if out := w.check(t); len(out.Changes) != 3 || out.Changes[1].Kind != "image" {
		t.Errorf("a check with nothing built says %+v", out.Changes)
	}
	w.update(t)
	if p := w.ensure(t); p.Sandbox.Labels["aisb.harness.pi"] != "1.7.0" {
		t.Errorf("runs stand on %v", p.Sandbox.Labels)
	}
}

// Each harness of the set is asked for, and no other; what one set has found, the
// others have, too.
func TestUpdateHarnessSet(t *testing.T) {
	w := newUpdateWorld(t)
	w.req.Harnesses = agents(t, "pi", "codex")
	w.harnessAt(t, "codex", agent(t, "codex").Version, "16.0.0")
	first := w.ensure(t)
	w.harnessAt(t, "codex", "1.0.0", "16.0.0")
	want := image.Change{Kind: "harness", Name: "codex", From: agent(t, "codex").Version, To: "1.0.0"}
	if out := w.check(t); len(out.Changes) != 1 || out.Changes[0] != want {
		t.Errorf("a check says %+v", out.Changes)
	}
	if out := w.update(t); len(out.Changes) != 1 || out.Changes[0] != want {
		t.Errorf("an update says %+v", out.Changes)
	}
	p := w.ensure(t)
	if p.Sandbox.Labels["aisb.harness.codex"] != "1.0.0" || p.Sandbox.Labels["aisb.harness.pi"] != agent(t, "pi").Version || p.Sandbox.Ref == first.Sandbox.Ref {
		t.Errorf("runs stand on %v", p.Sandbox.Labels)
	}
	if want := []Harness{{"pi", agent(t, "pi").Version}, {"codex", "1.0.0"}}; !reflect.DeepEqual(p.Harnesses, want) {
		t.Errorf("the plan has %v", p.Harnesses)
	}
	builds := len(w.builder.builds)
	w.req.Harnesses = agents(t, "codex")
	alone := w.ensure(t)
	if alone.Sandbox.Labels["aisb.harness.codex"] != "1.0.0" || alone.Sandbox.Labels["aisb.harness.pi"] != "" || len(w.builder.builds) != builds+1 {
		t.Errorf("codex alone stands on %v after %d builds", alone.Sandbox.Labels, len(w.builder.builds)-builds)
	}
	// Side by side: neither took the place of the other, and the gate's is the same.
	w.req.Harnesses = agents(t, "pi", "codex")
	if again := w.ensure(t); again.Sandbox.ID != p.Sandbox.ID || again.Gate.ID != alone.Gate.ID || len(w.builder.builds) != builds+1 {
		t.Errorf("back at the first set: %s, %s", again.Sandbox.Ref, again.Gate.ID)
	}
	// The other set has nothing more to do with codex.
	w.req.Harnesses = agents(t, "pi")
	delete(w.builder.scripts, agent(t, "codex").NewestScript())
	if out := w.check(t); len(out.Changes) != 1 || out.Changes[0].Kind != "image" {
		t.Errorf("a check of pi alone says %+v", out.Changes)
	}
}

// One odd release of one agent keeps nothing else from being updated, and is said.
func TestUpdateOfAnOddRelease(t *testing.T) {
	for name, c := range map[string]struct {
		version, node, lock string // "" is one of a release that is as it should be
		want                string // "": it is taken
	}{
		"none of the form":       {"1.7.0-beta.1", "", "", "no version of the form 1.2.3"},
		"a range of Node":        {"", "22.0.0 || ^24", "", "can't be told to be there"},
		"an address":             {"", "", `"license":"https://example.com",`, "has an address"},
		"no lock file":           {"", "", "{", "is no JSON"},
		"a word against its use": {"", "", `"deprecated":"see https://example.com",`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newUpdateWorld(t)
			w.req.Harnesses = agents(t, "pi", "codex")
			w.harnessAt(t, "codex", agent(t, "codex").Version, "16.0.0")
			w.ensure(t)
			w.harnessAt(t, "pi", cmp.Or(c.version, "1.7.0"), cmp.Or(c.node, "22.19.0"))
			w.harnessAt(t, "codex", "1.0.0", "16.0.0")
			lock := agent(t, "pi").LockScript()
			marshalled := strings.ReplaceAll(c.lock, `"`, `\"`)
			w.builder.scripts[lock] = strings.Replace(w.builder.scripts[lock], `\"integrity\"`, marshalled+`\"integrity\"`, 1)
			want := []image.Change{{Kind: "harness", Name: "codex", From: agent(t, "codex").Version, To: "1.0.0"}}
			if c.want == "" {
				want = append(want, image.Change{Kind: "harness", Name: "pi", From: agent(t, "pi").Version, To: "1.7.0"})
			}
			for what, out := range map[string]Outcome{"a check": w.check(t), "an update": w.update(t)} {
				if !reflect.DeepEqual(out.Changes, want) {
					t.Errorf("%s says %+v", what, out.Changes)
				}
				if notes := strings.Join(out.Notes, "\n"); c.want != "" && (!strings.Contains(notes, "pi stays at "+agent(t, "pi").Version+": ") || !strings.Contains(notes, c.want)) {
					t.Errorf("%s notes %q", what, out.Notes)
				}
			}
			p := w.ensure(t)
			if p.Sandbox.Labels["aisb.harness.codex"] != "1.0.0" || strings.Contains(string(p.Sandbox.Files["harness/pi/package-lock.json"].Data), "deprecated") {
				t.Errorf("runs stand on %v with %s", p.Sandbox.Labels, p.Sandbox.Files["harness/pi/package-lock.json"].Data)
			}
		})
	}
}

// What a user adds is in the sandbox's image alone, and in the build's context.
func TestToolchain(t *testing.T) {
	w := newWorld(t)
	plain := w.ensure(t)
	w.req.Apt, w.req.Setup = []string{"zsh"}, []byte("echo made\n")
	var script, mode string
	w.builder.onBuild = func(_ context.Context, b Build) error {
		data, err := os.ReadFile(filepath.Join(b.Dir, "setup"))
		script = string(data)
		info, _ := os.Stat(filepath.Join(b.Dir, "setup"))
		mode = info.Mode().String()
		return err
	}
	p := w.ensure(t)
	if script != "echo made\n" || mode != "-rw-r--r--" || p.Gate.ID != plain.Gate.ID || p.Sandbox.ID == plain.Sandbox.ID {
		t.Errorf("the script was %q (%s); %+v", script, mode, p.Sandbox)
	}
	w.builder.onBuild = nil
	w.req.Setup = []byte("echo other\n")
	if q := w.ensure(t); q.Sandbox.Ref == p.Sandbox.Ref || q.Gate.ID != plain.Gate.ID {
		t.Errorf("another script has the image of the first, %s", q.Sandbox.Ref)
	}
}

func TestUpdateNode(t *testing.T) {
	w := newUpdateWorld(t)
	// Where the user names a version, it stays.
	w.ensure(t)
	if out := w.check(t); len(out.Changes) != 0 || !strings.Contains(strings.Join(out.Notes, "\n"), "node stays at "+nodeVersion) {
		t.Errorf("a check says %+v", out)
	}
	list := `[{"version": "v99.0.0", "files": ["linux-x64"]}, {"version": "v24.99.1", "files": ["linux-arm64"]}, {"version": "v24.99.0", "files": ["linux-x64"]}, {"version": "v24.1.0", "files": ["linux-x64"]}]`
	sum := sumOfBytes("x")
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(status)
		switch r.URL.Path {
		case "/index.json":
			fmt.Fprint(rw, list)
		case "/v24.99.0/SHASUMS256.txt":
			fmt.Fprintf(rw, "%s  node-v24.99.0-linux-x64.tar.xz\n", sum)
		case "/v24.99.0/node-v24.99.0-linux-x64.tar.xz":
			fmt.Fprint(rw, "x")
		}
	}))
	t.Cleanup(s.Close)
	w.req.NodeVersion, w.req.NodeMirror = "", s.URL
	want := image.Change{Kind: "node", Name: "node", From: image.DefaultNode, To: "24.99.0"}
	out, err := w.req.Check(t.Context(), w.builder, w.opt)
	if err != nil || len(out.Changes) != 2 || out.Changes[0] != want {
		t.Errorf("a check says %+v, %v", out.Changes, err)
	}
	// An update has it built in, and remembers it.
	if out := w.update(t); len(out.Changes) == 0 || out.Changes[0] != want {
		t.Errorf("an update says %+v", out.Changes)
	}
	if version, err := w.req.recordedNode(); err != nil || version != "24.99.0" {
		t.Errorf("%q is remembered, %v", version, err)
	}
	if p := w.ensure(t); p.Sandbox.Labels[image.LabelNode] != "24.99.0" || p.in.node.SHA256 != sum {
		t.Errorf("runs have node %s", p.Sandbox.Labels[image.LabelNode])
	}
	// A site without a list is said; one that is broken ends it.
	status = http.StatusNotFound
	if out, err := w.req.Check(t.Context(), w.builder, w.opt); err != nil || !strings.Contains(strings.Join(out.Notes, "\n"), "no list of releases") {
		t.Errorf("without a list: %+v, %v", out.Notes, err)
	}
	status = http.StatusInternalServerError
	if _, err := w.req.Check(t.Context(), w.builder, w.opt); err == nil || !strings.Contains(err.Error(), "500") {
		t.Errorf("a broken site: %v", err)
	}
	status, list = http.StatusOK, "<html>"
	if _, err := w.req.Check(t.Context(), w.builder, w.opt); err == nil {
		t.Error("a list that is none: accepted")
	}
}

// Nothing is known of the packages without their registry, so a check fails.
func TestCheckWithoutNetwork(t *testing.T) {
	w := newUpdateWorld(t)
	w.ensure(t)
	delete(w.builder.scripts, image.UpgradesScript)
	if out, err := w.req.Check(t.Context(), w.builder, w.opt); err == nil {
		t.Errorf("a check says %+v", out)
	}
}

// Only what was built here is removed, with its record, and not its manifest; what was
// built for another state directory is not known here.
func TestRemove(t *testing.T) {
	w := newWorld(t)
	old := w.ensure(t)
	w.req.Apt = []string{"zsh"}
	p := w.ensure(t)
	found := func(i Image) Found { return Found{ID: i.ID, Labels: i.Labels} }
	for _, i := range []Image{old.Sandbox, p.Sandbox, p.Gate} {
		if !w.req.Here(found(i)) {
			t.Errorf("%s is not known here", i.Ref)
		}
	}
	other := w.req
	other.StateDir = t.TempDir()
	if other.Here(found(p.Sandbox)) {
		t.Error("an image of another state directory is known here")
	}
	// Labels are anybody's.
	for _, f := range []Found{{ID: "x"}, {ID: "x", Labels: map[string]string{image.LabelKind: "sandbox", image.LabelVersion: "../../x"}}, {ID: "x", Labels: p.Sandbox.Labels}} {
		if w.req.Here(f) {
			t.Errorf("%v is known here", f)
		}
	}
	if err := w.req.Remove(t.Context(), w.builder, found(old.Sandbox)); err != nil {
		t.Fatal(err)
	}
	left := strings.Join(files(t, w.req.StateDir), " ")
	if w.builder.images[old.Sandbox.ID] || strings.Contains(left, old.Sandbox.Tag) || !strings.Contains(left, old.Sandbox.ID+".manifest") || !strings.Contains(left, p.Sandbox.Tag+".json") {
		t.Errorf("what is left: %s", left)
	}
	// One that was replaced has no record of its own, and does not take the new one's.
	w.opt.Rebuild = true
	again := w.ensure(t)
	w.builder.images[p.Sandbox.ID] = true
	if err := w.req.Remove(t.Context(), w.builder, found(p.Sandbox)); err != nil {
		t.Fatal(err)
	}
	if id, err := w.req.recordedImage(again.Sandbox.Built); err != nil || id != again.Sandbox.ID {
		t.Errorf("the record of what replaced it: %q, %v", id, err)
	}
}

// While an update runs, what it has built may not be taken for unused, and while somebody
// looks for what is unused, no update begins.
func TestHoldBases(t *testing.T) {
	w := newUpdateWorld(t)
	list := func() []Request { return []Request{w.req, w.req} }
	release, ok, err := HoldBases(list()) // with nothing there yet
	if err != nil || !ok {
		t.Fatalf("before the first build: %t, %v", ok, err)
	}
	release()
	w.ensure(t)
	looked := false
	w.builder.onBuild = func(context.Context, Build) error {
		looked = true
		if _, ok, err := HoldBases(list()); ok || err != nil {
			t.Errorf("during an update: %t, %v", ok, err)
		}
		other := w.req
		other.Base = "registry.example/debian:x"
		if release, ok, err := HoldBases([]Request{other}); !ok || err != nil {
			t.Errorf("on another base: %t, %v", ok, err)
		} else {
			release()
		}
		return nil
	}
	w.update(t)
	release, ok, err = HoldBases(list())
	if err != nil || !ok || !looked {
		t.Fatalf("after it: %t, %v", ok, err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := w.req.Update(brief, w.builder, w.opt); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an update that is held up: %v", err)
	}
	release()
	w.update(t)
}

// A configuration keeps its images where a run may not stand on them yet, because the
// checksum of its Node is to be signed, or is not known at all any more.
func TestUses(t *testing.T) {
	w := newWorld(t)
	p := w.ensure(t)
	sandbox := Found{ID: p.Sandbox.ID, Labels: p.Sandbox.Labels}
	other := Found{ID: "other", Labels: map[string]string{image.LabelKind: "sandbox", image.LabelNode: "1.2.3"}}
	both := []string{p.Gate.ID, p.Sandbox.ID}
	for _, c := range []struct {
		name   string
		change func()
		found  []Found
		want   []string
	}{
		{"as built", func() {}, []Found{sandbox, other}, both},
		{"with a keyring", func() { w.asks("ann") }, []Found{sandbox, other}, both},
		{"without the checksum", func() {
			node, err := w.req.node(nodeVersion)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(w.req.sumFile(node)); err != nil {
				t.Fatal(err)
			}
		}, []Found{sandbox, other}, both},
		{"with nothing there", func() {}, []Found{other}, both[:1]},
		{"of another version", func() { w.req.NodeVersion = "22.99.0" }, []Found{sandbox, other}, both[:1]},
		{"of another base", func() { w.req.Base = "registry.example/debian:x" }, []Found{other}, nil},
	} {
		c.change()
		if got, err := w.req.Uses(c.found); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}
