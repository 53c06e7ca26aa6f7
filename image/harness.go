// The set of harnesses in the sandbox's image. Which ones there are, it is told.

package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
)

// A Harness is an agent program as npm has it. What it is of is no matter of this
// package: the adapters say that.
type Harness struct {
	// Name is also the program's. Module is the npm package that it is in, at Version.
	Name, Module, Version string
	// Lock is a package-lock.json of that, with the integrity hash of each package and no
	// download address, so that any registry serves (see ParseLock).
	Lock []byte
	// Scripts are the packages whose install scripts are run; no other's are.
	Scripts []string
	// Programs are the package that the program is in, by GOARCH, where that is one for
	// each platform and no script has to put it in its place; Unwanted are what comes
	// beside it for others and is left out of a lock file.
	Programs map[string]string
	Unwanted []string
}

// nameForm is the form of a harness's name, and moduleForm that of the npm packages that
// are known here (package.json(5), "name").
var (
	nameForm   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`) })
	moduleForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]{0,99}/)?[a-z0-9][a-z0-9._-]{0,99}$`)
	})
)

// check looks at every string that gets into a Containerfile.
func (h Harness) check() error {
	if !nameForm().MatchString(h.Name) {
		return fmt.Errorf("%+.40q is not the name of a harness", h.Name)
	}
	if !versionForm().MatchString(h.Version) {
		return fmt.Errorf("%s has %+.40q as its version", h.Name, h.Version)
	}
	modules := append([]string{h.Module}, h.Scripts...)
	for _, m := range h.Programs {
		modules = append(modules, m)
	}
	for _, m := range modules {
		if !moduleForm().MatchString(m) {
			return fmt.Errorf("%s has %+.40q as a package", h.Name, m)
		}
	}
	if len(h.Lock) == 0 {
		return fmt.Errorf("%s has no lock file", h.Name)
	}
	return nil
}

// checkHarnesses looks at the set of a recipe.
func (r Recipe) checkHarnesses() error {
	if len(r.Harnesses) == 0 {
		return errors.New("there is no harness in the set")
	}
	for i, h := range r.Harnesses {
		if err := h.check(); err != nil {
			return err
		}
		if slices.ContainsFunc(r.Harnesses[:i], func(other Harness) bool { return other.Name == h.Name }) {
			return fmt.Errorf("%s is in the set twice", h.Name)
		}
		if h.Programs != nil && h.Programs[r.Node.Arch] == "" {
			return fmt.Errorf("%s has no program for %s", h.Name, r.Node.Arch)
		}
	}
	return nil
}

// PackageJSON is the package.json of an installation of one version of it.
func (h Harness) PackageJSON(version string) []byte {
	text, err := json.MarshalIndent(struct {
		Name         string            `json:"name"`
		Private      bool              `json:"private"`
		Dependencies map[string]string `json:"dependencies"`
	}{"aisb-harness", true, map[string]string{h.Module: version}}, "", "  ")
	if err != nil {
		panic(err) // of strings
	}
	return append(text, '\n')
}

// harnessVersion is the version that is in the image.
func (r Recipe) harnessVersion(h Harness) string {
	if l := r.Locks[h.Name]; l != nil {
		return l.Version
	}
	return h.Version
}

// harnessFiles puts the two files of each into a build context.
func (r Recipe) harnessFiles(files map[string]File) {
	for _, h := range r.Harnesses {
		pkg, lock := h.PackageJSON(h.Version), h.Lock
		if l := r.Locks[h.Name]; l != nil {
			pkg, lock = l.Package, l.Packages
		}
		files["harness/"+h.Name+"/package.json"] = File{Data: pkg}
		files["harness/"+h.Name+"/package-lock.json"] = File{Data: lock}
	}
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
func (r Recipe) harnessLayers(line func(string, ...any)) {
	const npm = `--no-audit --no-fund --no-update-notifier --cache=/tmp/npm --logs-max=0`
	for _, h := range r.Harnesses {
		dir := harnessDir + "/" + h.Name
		line("")
		line(`COPY harness/%s/ %s/`, h.Name, dir)
		line(`RUN : %s with its packages; set -eu; \`, h.Name)
		line(`    cd %s; export HOME=/tmp; \`, dir)
		if r.CA != nil {
			line(`    export NODE_EXTRA_CA_CERTS=%s; \`, ExtraCAPath)
		}
		line(`    npm ci --ignore-scripts %s; \`, npm)
		line(`    node -e '%s' >>%s; \`, listInstalled, ManifestPath)
		for _, s := range h.Scripts {
			line(`    npm rebuild --ignore-scripts=false %s %s; \`, npm, s)
		}
		program := ".bin/" + h.Name
		if h.Programs != nil {
			program = h.Programs[r.Node.Arch] + "/bin/" + h.Name
		}
		line(`    ln -s %s/node_modules/%s /usr/local/bin/%s; \`, dir, program, h.Name)
		if len(h.Scripts) > 0 || h.Programs != nil { // what a script did is only known by its result
			line(`    %s --version | grep -F %s; \`, h.Name, r.harnessVersion(h))
		}
		line(`    find /tmp -mindepth 1 -delete`)
	}
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
