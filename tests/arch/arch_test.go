// Package arch_test holds the tree to what docs/architecture.md says about it:
// who may import whom (this file), and what every file has to look like
// (tree_test.go). It looks at the source alone and starts nothing of ours.
package arch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "ai-sandbox"

// A room is a package and what it may import of ours; tests are exempt, since a
// test may import what it compares. A pattern that ends in "/..." stands for all
// packages below too.
type room struct {
	name string
	may  []string
	why  string
}

const internal = "cmd/ai-sandbox/internal/"

// everything is for the two rooms where all comes together.
var everything = []string{"image/...", "policy", "gate", "entrypoint/spec", "entrypoint/firewall", "entrypoint/managed", internal + "..."}

var rooms = []room{
	{"image", nil, "what a run stands on does not depend on what it may do"},
	{"image/truststore", nil, "it writes certificates down, whoever reads them"},
	{"image/sbom", []string{"image"}, "it writes down what is in an image"},
	{"image/archive", nil, "it reads what anybody may have written, and knows nothing of what that is for"},
	{"image/registry", []string{"image", "image/archive"}, "it looks up what the recipe names"},
	{"policy", []string{"image"}, "a decision is a value: whatever carries it out comes after"},
	{"gate", []string{"policy"}, "squid.conf follows from the policy alone"},
	{"gate/gatetest", []string{"gate", "policy"}, "every gate engine has to pass it, so it knows none"},
	{"gate/builtin", []string{"gate", "policy"}, "an engine knows the rules and the log, and nothing of what it serves"},
	{"gate/relay", nil, "it passes bytes and decides nothing"},
	{"entrypoint/spec", nil, "both programs link it: what it imports gets into the sandbox"},
	{"entrypoint/firewall", []string{"entrypoint/spec"}, "the host prints the ruleset, and can't install one"},
	{"entrypoint/netfilter", []string{"entrypoint/spec", "entrypoint/firewall"}, "it does what the ruleset says, and decides nothing"},
	{"entrypoint/seccomp", nil, "the filter is the same for every policy and runtime"},
	{"entrypoint/managed", nil, "what becomes of a file follows from its three versions"},
	{"entrypoint", []string{"entrypoint/..."}, "the program inside knows its spec, not the policy it came from"},
	{"cmd/aisb-entrypoint", []string{"entrypoint/..."}, "it is small because it knows nothing of the host's side"},
	{internal + "config", []string{"policy", "image", internal + "harness"}, "settings are read before anything is done; which agents there are is data"},
	{internal + "trust", []string{internal + "config"}, "it judges a file, whatever starts with it"},
	{internal + "detach", nil, "it starts this program again, whatever for"},
	{internal + "embedded", nil, "it holds bytes"},
	{internal + "harness", []string{"policy", "image"}, "an adapter is data"},
	{internal + "harness/lock", []string{internal + "harness"}, "it writes what the adapters stand on, for whoever changes one"},
	{internal + "harness/pibridge", nil, "it rewrites two files, whatever they are for"},
	{internal + "protect", []string{"policy", "entrypoint/spec", internal + "session/store", internal + "harness"}, "it knows what is protected and in what record that is, by names that agents obey, and nothing of what runs"},
	{internal + "host", []string{"policy", "image"}, "facts are gathered without knowing what for"},
	{internal + "backend", []string{"policy", "image", "gate", "entrypoint/spec"}, "the contract names no backend"},
	{internal + "backend/fake", []string{internal + "backend", "policy", "image", "gate", "entrypoint/spec"}, "it stands for any backend"},
	{internal + "imagebuild", []string{"image", "image/archive", "image/sbom"}, "it keeps the images, whatever runs on them"},
	{internal + "backend/podman", []string{internal + "backend", internal + "imagebuild", internal + "tree", "policy", "image", "gate", "entrypoint/spec"}, "a backend carries out, and knows no flags and no sessions"},
	{internal + "backend/local", []string{internal + "backend", internal + "tree", "policy", "image", "gate", "entrypoint/spec"}, "a backend carries out, and knows no flags and no sessions"},
	{internal + "backend/backendtest", []string{internal + "backend", internal + "session", internal + "session/store", "policy", "image", "gate", "entrypoint/spec"}, "it drives sessions on a backend that it is given, and knows none"},
	{internal + "publish", []string{"policy", "gate/relay", "entrypoint/spec"}, "it lets in what the policy publishes, whatever runs inside"},
	{internal + "session/store", nil, "the record is an index: what is alive is asked elsewhere"},
	{internal + "session/trace", nil, "it writes down what it is told, whatever happened"},
	{internal + "session", []string{internal + "backend", internal + "protect", internal + "session/store", internal + "session/trace", internal + "publish", internal + "tree", "policy", "image", "gate", "gate/builtin", "gate/relay", "entrypoint/spec", "entrypoint/firewall"}, "it runs on any backend, the fake one too"},
	{internal + "tree", nil, "it removes what an agent left, wherever that is"},
	{internal + "engine", everything, "the parts are put together here, the one backend among them"},
	{internal + "cli", everything, "the flags are its alone; all others get values"},
	{"cmd/ai-sandbox", []string{internal + "..."}, "main hands over what it was started with"},
}

// A fence says who may import a module, or a part of the standard library.
type fence struct {
	imports []string // a module or package, and what is below it
	only    []string // rooms that may
	not     []string // rooms that may not (for all others it is open)
	why     string
}

// pure are the rooms that decide: same arguments, same value, nothing touched.
var pure = []string{"image", "image/truststore", "policy", "gate", "entrypoint/spec", "entrypoint/firewall", "entrypoint/managed", internal + "embedded", internal + "harness", internal + "harness/pibridge"}

var fences = []fence{
	{imports: []string{"github.com/containers/podman", "github.com/containers/buildah"}, only: []string{internal + "backend/podman"},
		why: "500 packages stay behind one door, and so does the way back to the podman command"},
	{imports: []string{"github.com/containers/image", "github.com/containers/storage", "github.com/containers/common"},
		only: []string{"image/registry", internal + "backend/podman"}, why: "digests are resolved and checked in one place"},
	{imports: []string{"github.com/google/nftables", "github.com/mdlayher/netlink"}, only: []string{"entrypoint/netfilter"},
		why: "rules are values everywhere else"},
	{imports: []string{"github.com/urfave/cli"}, only: []string{internal + "cli"}, why: "flags are read in one place"},
	{imports: []string{module + "/" + internal + "backend/podman"}, only: []string{internal + "engine"}, why: "which backend it is, is wired in one place"},
	{imports: []string{"os", "os/exec", "net", "net/http", "syscall", "golang.org/x/sys"}, not: pure,
		why: "what decides touches nothing: no file, process, socket or variable"},
	{imports: []string{"os/exec"}, not: []string{internal + "cli", internal + "config", internal + "engine", internal + "session", internal + "imagebuild", "gate/builtin", "gate/relay"},
		why: "programs are started by host, the backends and the entrypoint"},
	{imports: []string{"net/http", "crypto/tls", "os/exec", "plugin"}, not: []string{"entrypoint", "cmd/aisb-entrypoint", "entrypoint/netfilter", "entrypoint/seccomp"},
		why: "the program inside speaks to nobody but its two FIFOs and netlink"},
	{imports: []string{"plugin", "net/rpc", "net/http/pprof", "expvar"}, only: nil, why: "nothing of ours may load code or be looked into"},
}

// inside are the modules that cmd/aisb-entrypoint is linked from, exactly.
var inside = []string{
	"github.com/google/nftables",
	"github.com/mdlayher/netlink",
	"github.com/mdlayher/socket",
	"golang.org/x/net",
	"golang.org/x/sync",
	"golang.org/x/sys",
}

type pkg struct {
	ImportPath string
	Dir        string
	Imports    []string
	Module     *struct{ Path string }
}

// listed asks go for packages as they are built for release.
func listed(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Imports,Module"}, args...)...)
	cmd.Dir = root(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux",
		"GOFLAGS=-tags=remote,containers_image_openpgp,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", strings.Join(args, " "), err)
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// under tells whether an import is a package, or one below it or of a later
// major version.
func under(imported, name string) bool {
	return imported == name || strings.HasPrefix(imported, name+"/")
}

// matches a name of ours with a pattern.
func matches(name, pattern string) bool {
	if p, ok := strings.CutSuffix(pattern, "/..."); ok {
		return under(name, p)
	}
	return name == pattern
}

// judgeRoom says what is wrong with the imports of one of our packages.
func judgeRoom(name string, imports []string) []string {
	i := slices.IndexFunc(rooms, func(r room) bool { return r.name == name })
	if i < 0 {
		return []string{"is in no row of the table: say what it may import, and why"}
	}
	var wrong []string
	for _, imported := range imports {
		ours, ok := strings.CutPrefix(imported, module+"/")
		if ok && !slices.ContainsFunc(rooms[i].may, func(p string) bool { return matches(ours, p) }) {
			wrong = append(wrong, "imports "+ours+": "+rooms[i].why)
		}
		for _, f := range fences {
			// The standard library's names are whole: net is not net/netip.
			hit := slices.ContainsFunc(f.imports, func(n string) bool {
				return imported == n || strings.Contains(n, ".") && under(imported, n)
			})
			if hit && (f.not == nil && !slices.Contains(f.only, name) || slices.Contains(f.not, name)) {
				wrong = append(wrong, "imports "+imported+": "+f.why)
			}
		}
	}
	return wrong
}

func TestImports(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range listed(t, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		seen[name] = true
		if under(name, "tests/bench") {
			continue // what is measured against is made with the same values
		}
		if under(name, "tests") {
			for _, imported := range p.Imports {
				if ours, ok := strings.CutPrefix(imported, module+"/"); ok && !under(ours, "tests") {
					t.Errorf("%s imports %s: tests of the whole know the built program alone", name, ours)
				}
			}
			continue
		}
		for _, w := range judgeRoom(name, p.Imports) {
			t.Errorf("%s %s", name, w)
		}
	}
	// A row for a package that is gone guards nothing.
	for _, r := range rooms {
		if !seen[r.name] {
			t.Errorf("the table has a row for %s, which does not exist", r.name)
		}
		for _, p := range r.may {
			if base := strings.TrimSuffix(p, "..."); p == base && !seen[p] {
				t.Errorf("the row of %s names %s, which does not exist", r.name, p)
			}
		}
	}
}

// TestTableBites: the table refuses what it is there to refuse.
func TestTableBites(t *testing.T) {
	for _, c := range []struct {
		name, imports string
		ok            bool
	}{
		{"policy", module + "/image", true},
		{"policy", module + "/gate", false},
		{"policy", "net/netip", true},
		{"policy", "net", false},
		{"gate", "os/exec", false},
		{"entrypoint", module + "/entrypoint/spec", true},
		{"entrypoint", module + "/policy", false},
		{"entrypoint/netfilter", "github.com/google/nftables/expr", true},
		{"entrypoint/firewall", "github.com/google/nftables", false},
		{internal + "session", "github.com/containers/podman/v5/pkg/bindings", false},
		{internal + "session", module + "/" + internal + "backend/podman", false},
		{internal + "backend/podman", "github.com/containers/podman/v5/pkg/bindings", true},
		{internal + "backend/podman", module + "/" + internal + "session", false},
		{internal + "config", "github.com/urfave/cli/v2", false},
		{"image/registry", "net/rpc", false},
		{"elsewhere", "fmt", false},
	} {
		if wrong := judgeRoom(c.name, []string{c.imports}); (len(wrong) == 0) != c.ok {
			t.Errorf("%s with %s: %q", c.name, c.imports, wrong)
		}
	}
}

// TestInside: the program in the sandbox is linked from what is listed, no more.
func TestInside(t *testing.T) {
	var got []string
	for _, p := range listed(t, "-deps", "./cmd/aisb-entrypoint") {
		switch {
		case p.Module == nil: // the standard library
			for _, n := range []string{"net/http", "crypto/tls", "os/exec", "plugin"} {
				if p.ImportPath == n {
					t.Errorf("aisb-entrypoint is linked with %s", n)
				}
			}
		case p.Module.Path != module && !slices.Contains(got, p.Module.Path):
			got = append(got, p.Module.Path)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, inside) {
		t.Errorf("aisb-entrypoint is linked from the modules\n%s\nand not from\n%s", strings.Join(got, "\n"), strings.Join(inside, "\n"))
	}
}

// TestWithoutTags: the leaf packages need no build tag and no C, so that a
// newcomer's bare `go test ./policy` works.
func TestWithoutTags(t *testing.T) {
	for _, r := range rooms {
		if under(r.name, "cmd") || r.name == "image/registry" || r.name == "gate/gatetest" {
			continue
		}
		cmd := exec.Command("go", "list", "-deps", "-test", "-f", "{{.ImportPath}}", "./"+r.name)
		cmd.Dir = root(t)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", r.name, err, out)
		}
		for _, line := range strings.Fields(string(out)) {
			if under(line, "github.com/containers") {
				t.Errorf("%s needs %s", r.name, path.Clean(line))
			}
		}
	}
}
