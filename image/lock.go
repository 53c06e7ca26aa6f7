// A harness at the version that its registry has today, and what to ask for it.

package image

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A Lock is a harness at one version, with every package that it needs by its
// integrity hash.
type Lock struct {
	Version string
	// Package and Packages are the package.json and the package-lock.json.
	Package, Packages []byte
	// Node is the oldest Node that it runs on, or "" for a program that needs none.
	Node string
}

// maxLock bounds a lock file, in bytes.
const maxLock = 8 << 20

// ParseLock takes the two files of a harness as npm has made them. Addresses are
// taken out, so that any registry serves; what is not pinned by a hash is refused.
func (h Harness) ParseLock(pkg, packages []byte) (*Lock, error) {
	bad := func(format string, a ...any) (*Lock, error) {
		return nil, fmt.Errorf("the lock file of "+h.Name+" "+format, a...)
	}
	if len(pkg)+len(packages) > maxLock {
		return bad("is larger than %d MiB", maxLock>>20)
	}
	version, err := readHarnessPackage(pkg, h.Module)
	if err != nil {
		return bad("%w", err)
	}
	l := &Lock{Version: version, Package: h.PackageJSON(version)}
	var file map[string]any
	if err := json.Unmarshal(packages, &file); err != nil {
		return bad("is no JSON: %w", err)
	}
	list, ok := file["packages"].(map[string]any)
	if !ok {
		return bad("has no packages")
	}
	for path, v := range list {
		p, ok := v.(map[string]any)
		if !ok {
			return bad("has %+q as something else than a package", path)
		}
		// These hold addresses, and nothing that an installation needs.
		for _, field := range []string{"funding", "resolved", "deprecated"} {
			delete(p, field)
		}
		if path == "" {
			continue
		}
		if optional, _ := p["optional"].(bool); optional && slices.Contains(h.Unwanted, strings.TrimPrefix(path, "node_modules/")) {
			delete(list, path)
			continue
		}
		integrity, _ := p["integrity"].(string)
		version, _ := p["version"].(string)
		_, link := p["link"]
		if !strings.HasPrefix(integrity, "sha512-") || version == "" || link {
			return bad("has %+q without a SHA-512 hash", path)
		}
	}
	main, _ := list["node_modules/"+h.Module].(map[string]any)
	if main["version"] != l.Version {
		return bad("has it as %+q, and not as %s", main["version"], l.Version)
	}
	engines, _ := main["engines"].(map[string]any)
	need, _ := engines["node"].(string)
	if _, ok := main["engines"]; ok || h.Programs == nil {
		m := enginesForm().FindStringSubmatch(need)
		if m == nil {
			return bad("says that it needs node %+q, which can't be told to be there", need)
		}
		l.Node = m[1] + cmp.Or(m[2], ".0") + cmp.Or(m[3], ".0")
	}
	if l.Packages, err = json.MarshalIndent(file, "", "  "); err != nil {
		return nil, err
	}
	if bytes.Contains(l.Packages, []byte("://")) {
		return bad("has an address")
	}
	return l, nil
}

// enginesForm is how packages say which Node they need (package.json(5)), as far as
// it can be compared.
var enginesForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^>= ?([0-9]{1,4})(\.[0-9]{1,4})?(\.[0-9]{1,4})?$`)
})

// Older compares two versions of the form 24.15.0; others are never older.
func Older(a, b string) bool {
	return versionForm().MatchString(a) && versionForm().MatchString(b) && older(a, b)
}

// Scripts that are run in a container of an image that was built, on the network
// that builds have. They write what was asked for to standard output, and all else
// to standard error.
const (
	scriptHead = `set -eu; export LC_ALL=C HOME=/tmp npm_config_cache=/tmp/npm npm_config_update_notifier=false; get="apt-get -q"; ` +
		`if [ -e ` + ExtraCAPath + ` ]; then ` + aptCA + `; get="$get` + aptCAOption + `"; export NODE_EXTRA_CA_CERTS=` + ExtraCAPath + `; fi; `
	// UpgradesScript tells what a build of today would bring; ParseUpgrades and ParseStays
	// read it.
	UpgradesScript = scriptHead + `$get ` + aptStrict + ` update >&2; $get -s ` + aptUpgrade + `; apt-cache policy $(dpkg-query -W -f '${Package}\n')`
)

// NewestScript tells the harness's newest version; ReadVersion reads it.
func (h Harness) NewestScript() string {
	return scriptHead + `cd /tmp; npm view ` + h.Module + ` version`
}

// LockScript makes a lock file of that; ReadLock reads it.
func (h Harness) LockScript() string {
	return scriptHead + `mkdir /tmp/lock; cd /tmp/lock; echo '{"name": "aisb-harness", "private": true}' >package.json; ` +
		`npm install --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund --save-exact ` + h.Module + `@latest >&2; ` +
		`node -p 'JSON.stringify(["package.json", "package-lock.json"].map(n => require("fs").readFileSync(n, "utf8")))'`
}

// ReadLock reads what LockScript has written.
func (h Harness) ReadLock(out []byte) (*Lock, error) {
	var files []string
	if err := json.Unmarshal(out, &files); err != nil || len(files) != 2 {
		return nil, errors.New("npm made no lock file")
	}
	return h.ParseLock([]byte(files[0]), []byte(files[1]))
}

// ReadVersion reads what NewestScript has written.
func (h Harness) ReadVersion(out []byte) (string, error) {
	v := strings.TrimSpace(string(out))
	if !versionForm().MatchString(v) {
		return "", fmt.Errorf("the newest version of %s is %+.40q, which is no version of the form 1.2.3", h.Name, v)
	}
	return v, nil
}
