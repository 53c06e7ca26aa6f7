// The harnesses that can be put into the sandbox's image, and the set of them that
// is in one.

package image

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The lock file of a harness holds the integrity hash of each package and no
// download address, so that any registry serves. To make one anew:
//
//	npm install --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts
//
// and take the "funding" members out, which hold addresses too, and the harness's unwanted.
var (
	//go:embed pi/package.json
	piPackage []byte
	//go:embed pi/package-lock.json
	piLock []byte
	//go:embed claude/package.json
	claudePackage []byte
	//go:embed claude/package-lock.json
	claudeLock []byte
	//go:embed codex/package.json
	codexPackage []byte
	//go:embed codex/package-lock.json
	codexLock []byte
	//go:embed gemini/package.json
	geminiPackage []byte
	//go:embed gemini/package-lock.json
	geminiLock []byte
	//go:embed opencode/package.json
	opencodePackage []byte
	//go:embed opencode/package-lock.json
	opencodeLock []byte
)

// A harnessPackage is an agent program as npm has it.
type harnessPackage struct {
	// name is also the program's.
	name, module, version string
	// pkg and lock are its package.json and package-lock.json.
	pkg, lock *[]byte
	// scripts are the packages whose install scripts are run; no other's are.
	scripts []string
	// programs are the package that the program is in, by GOARCH, where that is one for
	// each platform and no script has to put it in its place; unwanted are what comes
	// beside it for others and is left out of a lock file.
	programs map[string]string
	unwanted []string
}

// harnessPackages is in the order of their layers: what is asked for most often
// comes first, so that most sets have the same layers.
var harnessPackages = []harnessPackage{
	{name: "pi", module: "@earendil-works/pi-coding-agent", version: "1.6.0", pkg: &piPackage, lock: &piLock},
	{
		name: "claude", module: "@anthropic-ai/claude-code", version: "2.1.332", pkg: &claudePackage, lock: &claudeLock,
		// It puts the program of the platform, which is a package of its own, in
		// the place of one that only says that it is not there.
		scripts: []string{"@anthropic-ai/claude-code"},
	},
	{name: "codex", module: "@openai/codex", version: "0.171.0", pkg: &codexPackage, lock: &codexLock},
	{name: "gemini", module: "@google/gemini-cli", version: "0.61.0", pkg: &geminiPackage, lock: &geminiLock},
	{
		name: "opencode", module: "opencode-ai", version: "1.18.18", pkg: &opencodePackage, lock: &opencodeLock,
		// Its script would choose by the processor that builds, and install what is
		// missing past the lock file. The baseline program runs on every amd64.
		programs: map[string]string{"amd64": "opencode-linux-x64-baseline", "arm64": "opencode-linux-arm64"},
		unwanted: []string{"opencode-linux-x64", "opencode-linux-x64-musl", "opencode-linux-x64-baseline-musl", "opencode-linux-arm64-musl"},
	},
}

// DefaultHarnesses is the set of an image when the user names none.
const DefaultHarnesses = "pi"

// HarnessNames are those that can be in an image.
func HarnessNames() []string {
	var out []string
	for _, h := range harnessPackages {
		out = append(out, h.name)
	}
	return out
}

// ParseHarnesses reads a set as a user writes it: names with commas between them.
// It comes back in the order of the layers, whatever order it was written in.
func ParseHarnesses(s string) ([]string, error) {
	var asked []string
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return nil, fmt.Errorf("%+q has a name too few", s)
		case !slices.Contains(HarnessNames(), name):
			return nil, fmt.Errorf("%+.40q can't be put into the image", name)
		case slices.Contains(asked, name):
			return nil, fmt.Errorf("%s is named twice", name)
		}
		asked = append(asked, name)
	}
	return slices.DeleteFunc(HarnessNames(), func(name string) bool { return !slices.Contains(asked, name) }), nil
}

// harnesses are the recipe's, in the order of the layers.
func (r Recipe) harnesses() ([]harnessPackage, error) {
	var out []harnessPackage
	for _, h := range harnessPackages {
		if slices.Contains(r.Harnesses, h.name) {
			out = append(out, h)
		}
	}
	if len(out) != len(r.Harnesses) || len(out) == 0 {
		return nil, fmt.Errorf("%+q is no set of harnesses", r.Harnesses)
	}
	return out, nil
}

func lookupHarness(name string) (harnessPackage, error) {
	i := slices.IndexFunc(harnessPackages, func(h harnessPackage) bool { return h.name == name })
	if i < 0 {
		return harnessPackage{}, fmt.Errorf("%+.40q is in no package that is known here", name)
	}
	return harnessPackages[i], nil
}

// HarnessModule is the npm package that a harness is in, or "".
func HarnessModule(name string) string {
	h, _ := lookupHarness(name) // the zero value says it
	return h.module
}

// HarnessVersion is the version of a harness that the recipe itself has, or "".
func HarnessVersion(name string) string {
	h, _ := lookupHarness(name) // the zero value says it
	return h.version
}

// harnessVersion is the version that is in the image.
func (r Recipe) harnessVersion(h harnessPackage) string {
	if l := r.Locks[h.name]; l != nil {
		return l.Version
	}
	return h.version
}

// harnessFiles puts the two files of each into a build context.
func (r Recipe) harnessFiles(files map[string]File) error {
	list, err := r.harnesses()
	if err != nil {
		return err
	}
	for _, h := range list {
		pkg, lock := *h.pkg, *h.lock
		if l := r.Locks[h.name]; l != nil {
			pkg, lock = l.Package, l.Packages
		}
		files["harness/"+h.name+"/package.json"] = File{Data: pkg}
		files["harness/"+h.name+"/package-lock.json"] = File{Data: lock}
	}
	return nil
}

// listInstalled is JavaScript that writes what was installed by the lock file in the
// working directory. It fails where a package is missing that fits this machine: if
// the download of an optional one fails, npm leaves it out and says that all is well.
const listInstalled = `const fs = require("fs"), has = (l, x) => !l || l.includes(x) || l.every(e => e[0] == "!") && !l.includes("!" + x); \
        for (const [k, p] of Object.entries(require("./package-lock.json").packages)) { \
            if (k && fs.existsSync(k)) console.log("npm", p.name ?? k.split("node_modules/").pop(), p.version); \
            else if (k && has(p.os, process.platform) && has(p.cpu, process.arch) && has(p.libc, "glibc")) { console.error(k + " was not installed"); process.exit(1); } \
        }`

// harnessLayers installs exactly what the lock files say, each package checked
// against its integrity hash, and runs none of their scripts but those on the list.
func (r Recipe) harnessLayers(line func(string, ...any)) error {
	list, err := r.harnesses()
	if err != nil {
		return err
	}
	const npm = `--no-audit --no-fund --no-update-notifier --cache=/tmp/npm --logs-max=0`
	for _, h := range list {
		dir := harnessDir + "/" + h.name
		line("")
		line(`COPY harness/%s/ %s/`, h.name, dir)
		line(`RUN : %s with its packages; set -eu; \`, h.name)
		line(`    cd %s; export HOME=/tmp; \`, dir)
		if r.CA != nil {
			line(`    export NODE_EXTRA_CA_CERTS=%s; \`, ExtraCAPath)
		}
		line(`    npm ci --ignore-scripts %s; \`, npm)
		line(`    node -e '%s' >>%s; \`, listInstalled, ManifestPath)
		for _, s := range h.scripts {
			line(`    npm rebuild --ignore-scripts=false %s %s; \`, npm, s)
		}
		program := ".bin/" + h.name
		if h.programs != nil {
			program = h.programs[r.Node.Arch] + "/bin/" + h.name
		}
		line(`    ln -s %s/node_modules/%s /usr/local/bin/%s; \`, dir, program, h.name)
		if len(h.scripts) > 0 || h.programs != nil { // what a script did is only known by its result
			line(`    %s --version | grep -F %s; \`, h.name, r.harnessVersion(h))
		}
		line(`    find /tmp -mindepth 1 -delete`)
	}
	return nil
}

// readHarnessPackage tells whether a package.json depends on exactly one version of
// a module.
func readHarnessPackage(pkg []byte, module string) (version string, err error) {
	var root struct{ Dependencies map[string]string }
	if err := json.Unmarshal(pkg, &root); err != nil {
		return "", fmt.Errorf("has a package.json that is no JSON: %w", err)
	}
	version = root.Dependencies[module]
	if len(root.Dependencies) != 1 || !versionForm().MatchString(version) {
		return "", fmt.Errorf("does not name one exact version of it: %+q", root.Dependencies)
	}
	return version, nil
}
