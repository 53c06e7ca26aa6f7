// What a user adds to the sandbox's image: Debian packages, and a script.

package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// MaxSetup is the longest setup script, in bytes: what a person can be expected to
// look through.
const MaxSetup = 64 << 10

// setupPath is where an image keeps its setup script, to be looked at.
const setupPath = "/etc/aisb/setup"

// packageVersion is Debian's rule for versions (policy manual, 5.6.12), where it
// also begins with a digit.
var packageVersion = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([0-9]{1,9}:)?[0-9][A-Za-z0-9.+~-]*$`)
})

// maxPackage bounds a package's name with its version, in bytes.
const maxPackage = 200

// checkPackage judges NAME or NAME=VERSION. Debian's rule lets a name end with "-",
// which apt-get takes for "remove", so no such name is taken.
func checkPackage(s string) error {
	name, version, pinned := strings.Cut(s, "=")
	switch {
	case len(s) > maxPackage:
		return fmt.Errorf("%+.40q... is too long for a Debian package", s)
	case !packageForm().MatchString(name) || strings.HasSuffix(name, "-"):
		return fmt.Errorf("%+q is not the name of a Debian package", name)
	case pinned && !packageVersion().MatchString(version):
		return fmt.Errorf("%+q is not the version of a Debian package", version)
	}
	return nil
}

// Packages brings what a user asked for into one form: sorted, and each once. A
// package in two versions is an error.
func Packages(asked []string) ([]string, error) {
	out := slices.Compact(slices.Sorted(slices.Values(asked)))
	names := map[string]string{}
	for _, s := range out {
		if err := checkPackage(s); err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(s, "=")
		if other, ok := names[name]; ok {
			return nil, fmt.Errorf("%s and %s are two versions of one package", other, s)
		}
		names[name] = s
	}
	return out, nil
}

// CheckSetup judges a setup script as a text that a person can read.
func CheckSetup(script []byte) error {
	switch {
	case len(script) > MaxSetup:
		return fmt.Errorf("is longer than %d KiB", MaxSetup>>10)
	case len(bytes.TrimSpace(script)) == 0:
		return errors.New("is empty")
	case !utf8.Valid(script) || bytes.IndexByte(script, 0) >= 0:
		return errors.New("is not a text in UTF-8")
	}
	return nil
}

// SetupSHA256 is a script's checksum in hex, or "" for none.
func SetupSHA256(script []byte) string {
	if script == nil {
		return ""
	}
	sum := sha256.Sum256(script)
	return hex.EncodeToString(sum[:])
}

// checkToolchain looks at all of it again.
func (r Recipe) checkToolchain() error {
	if r.Kind == KindGate {
		if r.Apt != nil || r.Setup != nil || r.Again != "" {
			return errors.New("nothing is added to the gate's image")
		}
		return nil
	}
	if r.Setup == nil && r.Again != "" {
		return errors.New("there is no setup script to run anew")
	}
	if again, err := Packages(r.Apt); err != nil || !slices.Equal(again, r.Apt) {
		return errors.Join(err, fmt.Errorf("%+q are not packages in order", r.Apt))
	}
	if r.Setup != nil {
		if err := CheckSetup(r.Setup); err != nil {
			return fmt.Errorf("the setup script %w", err)
		}
	}
	return nil
}

// debsAnew brings the manifest up to date after more Debian packages were installed.
const debsAnew = `    { ` + listDebs + `; grep -v '^deb ' ` + ManifestPath + ` || :; }` + intoManifest

// allAnew brings it up to date after a script that may have installed anything, anywhere,
// or have taken it away. node_modules is npm's, pnpm's and yarn's name for where they put
// packages (npm-folders(5)), whatever prefix npm was given; what is below one belongs to
// it. Nothing is asked of npm, and nothing is run that a script may have put before
// Debian's own programs.
const allAnew = `    { ` + listDebs + `; echo "node $(/usr/local/bin/node --version | tr -d v)"; \
      find / -xdev \( -path /tmp -o -path /var/tmp \) -prune -o -name node_modules -prune -print0 | \
      /usr/local/bin/node -e '` + listNPM + `'; }` + intoManifest

const intoManifest = ` >` + ManifestPath + `.new; mv ` + ManifestPath + `.new ` + ManifestPath + `; \`

// listNPM is JavaScript that writes the packages in the directories that it reads from its
// standard input, and those within them, each version once. A package may be a link to
// where it is, and links may lead in circles. What has no name and version that can be
// written on a line is no package of a registry's.
const listNPM = `const fs = require("fs"), seen = new Set(), found = new Set(); \
        const entries = dir => { try { return fs.readdirSync(dir); } catch { return []; } }; \
        const list = dir => entries(dir).forEach(k => { \
            let at = dir + "/" + k, p; \
            if (k[0] == "@") return list(at); \
            if (k == ".pnpm") return entries(at).forEach(s => list(at + "/" + s + "/node_modules")); \
            if (k[0] == ".") return; \
            try { at = fs.realpathSync(at); p = JSON.parse(fs.readFileSync(at + "/package.json", "utf8")); } catch { return; } \
            if (seen.has(at)) return; \
            seen.add(at); \
            if ([p?.name, p?.version].every(s => typeof s == "string" && /^[!-~]{1,200}$/.test(s))) found.add("npm " + p.name + " " + p.version); \
            list(at + "/node_modules"); \
        }); \
        fs.readFileSync(0, "utf8").split("\0").filter(d => d).forEach(list); \
        [...found].sort().forEach(l => console.log(l))`

// aptExact keeps apt-get from taking a name that no package has for an expression
// that matches others (apt-get(8), install).
const aptExact = ` -o APT::Cmd::Pattern-Only=true`

// toolchainLayers come after all that they have no part in.
func (r Recipe) toolchainLayers(line func(string, ...any)) {
	if len(r.Apt) > 0 {
		line("")
		line(`RUN : Debian packages that were asked for; set -eu; \`)
		get := r.aptGet(line)
		line(`    %s %s update; \`, get, aptStrict)
		line(`    %s install -y --no-install-recommends \`, get+aptExact)
		var held []string
		for i, p := range r.Apt {
			end := ` \`
			if i == len(r.Apt)-1 {
				end = `; \`
			}
			line(`        %s%s`, p, end)
			if name, _, pinned := strings.Cut(p, "="); pinned {
				held = append(held, name)
			}
		}
		if held != nil { // or a look at what is newer would name them each time
			line(`    apt-mark hold %s; \`, strings.Join(held, " "))
		}
		line("%s", debsAnew)
		line("%s", tidy)
	}
	if r.Setup != nil {
		line("")
		line(`COPY --chown=0:0 --chmod=0755 setup %s`, setupPath)
		line(`RUN : setup script; set -eu; \`)
		if r.Again != "" {
			line(`    : run anew on %s; \`, r.Again)
		}
		line(`    export DEBIAN_FRONTEND=noninteractive HOME=/root; \`)
		if r.CA != nil {
			line(`    export NODE_EXTRA_CA_CERTS=%s; \`, ExtraCAPath)
		}
		line(`    cd /; %s </dev/null; \`, setupPath)
		line(`    PATH=/usr/sbin:/usr/bin:/sbin:/bin; \`)
		line("%s", places)
		line("%s", emptyRun)
		line("%s", allAnew)
		line("%s", tidy)
	}
}
