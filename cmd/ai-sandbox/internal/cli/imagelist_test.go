package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/trust"
	"ai-sandbox/image"
	"ai-sandbox/policy"
	"ai-sandbox/tests/schema"
)

// What the user's file and its profiles say, and those of trusted projects over it,
// with the script as it was trusted; a project's file that is gone says nothing.
func TestConfiguredImages(t *testing.T) {
	s := newStage(t)
	s.write(s.config, "harness_packages = claude\n[profile other]\napt = gcc\n[profile jail]\nruntime = local\napt = never\n")
	s.trustFile("harness_packages = codex\nsetup = x.sh\n[profile deep]\napt = gdb\n")
	script := filepath.Join(s.project, "x.sh")
	s.write(script, "trusted\n")
	if code := s.do("trust", "--yes"); code != 0 {
		t.Fatal(s.err.String())
	}
	s.write(script, "changed\n")

	a := newApp(t.Context(), nil, s.env, Streams{Out: &s.out, Err: &s.err}, s.engine)
	a.cwd = s.project
	facts, err := a.probe(true, false)
	if err != nil {
		t.Fatal(err)
	}
	projects, err := trust.In(facts.Dirs.State).All()
	if err != nil || len(projects) != 1 || projects[0].Path != s.project {
		t.Fatalf("trusted in %v, %v", projects, err)
	}
	base, err := a.own(nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := func(l config.Layers) map[string]bool {
		t.Helper()
		list, err := a.configured(setup{Machine: Machine{Facts: facts}}, l)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for _, r := range list {
			out[strings.Join(r.Harnesses, ",")+"|"+strings.Join(r.Apt, ",")+"|"+string(r.Setup.Text)] = true
		}
		return out
	}
	same := func(got map[string]bool, want ...string) {
		t.Helper()
		for _, w := range want {
			if !got[w] {
				t.Errorf("%q is not among %v", w, got)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%v, and not %q", got, want)
		}
	}
	same(seen(base), "claude||", "claude|gcc|")
	with := base
	with.Project = projects[0].File
	same(seen(with), "codex||trusted\n", "codex|gcc|trusted\n", "codex|gdb|trusted\n")
	// A variable and a flag of the moment hide nothing.
	now := base
	now.Env = []config.Item{{Key: "harness_packages", Value: "pi", Origin: "AISB_HARNESS_PACKAGES"}}
	now.Flags = []config.Item{{Key: "profile", Value: "other", Origin: "--profile"}}
	same(seen(now), "claude||", "claude|gcc|", "pi||", "pi|gcc|")
	// What makes no sense is an error, and not nothing.
	with.User.Items = append(with.User.Items, config.Item{Key: "ca_file", Value: "/nowhere", Origin: "user:9"})
	if list, err := a.configured(setup{Machine: Machine{Facts: facts}}, with); err == nil {
		t.Errorf("without its CA file it is %v", list)
	}
}

// A project without a file configures nothing; one that is not there may come back.
func TestFileGone(t *testing.T) {
	project := t.TempDir()
	file := filepath.Join(project, config.ProjectFile)
	if !fileGone(project) {
		t.Error("a project without a file counts")
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if fileGone(project) {
		t.Error("a project with its file does not count")
	}
	if fileGone(filepath.Join(project, "away")) || fileGone(filepath.Join(file, "x")) {
		t.Error("a project that is away does not count")
	}
}

func TestWriteImages(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	list := []ListedImage{
		{Kind: image.KindSandbox, Ref: "localhost/ai-sandbox:0123456789ab", ID: strings.Repeat("12", 32), Created: now.Add(-50 * time.Hour), Size: 1234e6,
			BaseRef: image.DefaultBase, BaseDigest: image.Unpinned, Harnesses: []policy.Harness{{Name: "pi", Version: "1.6.0"}, {Name: "codex", Version: "0.171.0"}},
			Apt: []string{"gcc", "gdb=1"}, Setup: "sha256:" + strings.Repeat("ab", 32), Here: true, UsedBy: []string{"a configuration", "session 0123456789ab"}},
		{Kind: image.KindGate, Ref: "none\x1b[2J", ID: strings.Repeat("34", 32), Created: now, Size: 2e6, BaseDigest: image.Unpinned, Here: true, UsedBy: []string{}},
		{Kind: image.KindGate, Ref: "none", ID: strings.Repeat("56", 32), Created: now, Size: 2e6, BaseDigest: image.Unpinned, UsedBy: []string{}},
	}
	var b bytes.Buffer
	if err := writeImages(&b, list, now); err != nil {
		t.Fatal(err)
	}
	const want = "localhost/ai-sandbox:0123456789ab      121212121212    2 days     1234 MB  pi 1.6.0, codex 0.171.0, apt gcc gdb=1, setup sha256:abababababab\n" +
		"    used by a configuration, session 0123456789ab\n" +
		"none\\x1b[2J                               343434343434    0 days        2 MB  gate\n" +
		"    not used; ai-sandbox clean --images removes it\n" +
		"none                                   565656565656    0 days        2 MB  gate\n" +
		"    built for another user or state directory, so it stays\n"
	if b.String() != want {
		t.Errorf("it says\n%s", b.String())
	}
	for i, unused := range []bool{false, true, false} {
		if list[i].Unused() != unused {
			t.Errorf("%d: unused is %t", i, !unused)
		}
	}
	b.Reset()
	if err := writeJSON(&b, ImageList{Version: 1, Images: list}); err != nil {
		t.Fatal(err)
	}
	if err := schema.Documented("../../../../docs/images.md", "images", b.Bytes()); err != nil {
		t.Error(err)
	}
}
