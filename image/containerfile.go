// The Containerfile of a recipe.

package image

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// packageForm is Debian's rule for package names (policy manual, 5.6.1).
var packageForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`) })

// Parts of apt-get's command line that a build and a look at what a build would
// bring have in common. The base need not have any CA yet, and the mirror may be
// behind TLS. A file that the base has changed stays as it is, and nobody is asked.
const (
	aptCA       = `{ cat /etc/ssl/certs/ca-certificates.crt 2>/dev/null || :; cat ` + ExtraCAPath + `; } >/tmp/ca.pem`
	aptCAOption = ` -o Acquire::https::CaInfo=/tmp/ca.pem`
	aptStrict   = `-o APT::Update::Error-Mode=any`
	aptUpgrade  = `-o Dpkg::Options::=--force-confold -y --with-new-pkgs --no-install-recommends upgrade`
)

// tidy takes out what package installation leaves behind that differs from one
// build to the next (the day on which a package's user was made, too), or that
// only a package manager in use would read. What is left is the same for the
// same packages.
const tidy = `    find / -xdev -type f -perm /6000 -exec chmod a-s {} +; \
    sed -i -E 's/^([^:]*:[^:]*:)[0-9]+:/\1:/' /etc/shadow; \
    apt-get clean; \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig /var/cache/debconf/*-old \
        /var/lib/dpkg/*-old /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/machine-id \
        /etc/ssl/private/ssl-cert-snakeoil.key /tmp/* /var/tmp/*; \
    find /var/log -type f -delete`

// containerfile is ordered by how rarely a part changes: a new entrypoint makes
// only the last layer anew. It sets no ENTRYPOINT, ENV, USER or VOLUME: how an
// image is run is the policy's to say. The ": name;" that each RUN begins with
// does nothing; it is what people are shown of the step (see StepName).
func (r Recipe) containerfile() (string, error) {
	from, err := r.Base.from()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }

	line("# Made by ai-sandbox. The image's tag is the hash of this text and of the")
	line("# files that are copied; the Node tarball is in it by its checksum.")
	line("FROM %s", from)
	if r.CA != nil {
		line("")
		line("COPY extra-ca.pem %s", ExtraCAPath)
		if r.Kind == KindSandbox {
			line("COPY ca/ /usr/local/share/ca-certificates/")
		}
	}
	line("")
	r.aptLayer(line)
	if r.Kind == KindSandbox {
		line("")
		r.nodeLayer(line)
		r.harnessLayers(line)
		r.toolchainLayers(line)
		line("")
		line("COPY hosts resolv.conf /etc/")
	}
	line("")
	line("COPY --chown=0:0 --chmod=0755 %s %s", EntrypointName, EntrypointPath)
	return b.String(), nil
}

// places makes the sandbox's own directories, with nothing in them.
var places = fmt.Sprintf(`    rm -rf %s %s; \
    install -d -o %d -g %d -m 0700 %[1]s; \
    install -d -o %[3]d -g %[4]d -m 0755 %[2]s; \`, HomeDir, ProjectDir, UID, GID)

// emptyRun leaves in /run what a build needs there, and our own directories.
const emptyRun = `    find /run -mindepth 1 -maxdepth 1 ! -name .containerenv ! -name secrets -exec rm -rf {} +; \
    install -d -m 0755 /etc/aisb /run/aisb; \`

// listDebs is the manifest's part of Debian's packages. dpkg-query also names those that
// are removed, and of which a configuration is left. sh would not see it fail before a pipe.
const listDebs = `dpkg-query -W -f '${db:Status-Status} deb ${Package} ${Version} ${Architecture}\n' >/tmp/debs; sed -n 's/^installed //p' /tmp/debs`

// aptGet prepares a step for apt-get, and returns the beginning of its command line.
func (r Recipe) aptGet(line func(string, ...any)) string {
	line(`    export DEBIAN_FRONTEND=noninteractive; \`)
	if r.CA == nil {
		return "apt-get -q"
	}
	line(`    %s; \`, aptCA)
	return "apt-get -q" + aptCAOption
}

func (r Recipe) aptLayer(line func(string, ...any)) {
	user, home := "sandbox", HomeDir
	if r.Kind == KindGate {
		user, home = "aisb", "/"
	}
	line(`RUN : Debian packages; set -eu; \`)
	if r.Packages != "" {
		line(`    : asked for anew on %s; \`, r.Packages)
	}
	get := r.aptGet(line)
	// Without the option a list that can't be fetched is only warned about, and
	// the fixes in it would be missing. The base's own packages are brought up to
	// date too: what is linked against is often one of them.
	line(`    %s %s update; \`, get, aptStrict)
	line(`    %s %s; \`, get, aptUpgrade)
	line(`    %s install -y --no-install-recommends \`, get)
	packages := slices.Sorted(slices.Values(r.apt()))
	for i, p := range packages {
		end := ` \`
		if i == len(packages)-1 {
			end = `; \`
		}
		line(`        %s%s`, p, end)
	}
	if r.Kind == KindSandbox {
		if r.CA != nil {
			line(`    update-ca-certificates; \`)
		}
		line(`    ln -s fdfind /usr/bin/fd; \`)
	}
	// A base may have a user of this number or name already.
	for _, file := range []string{"passwd", "group"} {
		line(`    sed -i -E '/^(%s:|[^:]*:[^:]*:%d:)/d' /etc/%s; \`, user, UID, file)
	}
	line(`    echo '%s:*:%d:%d::%s:/bin/bash' >>/etc/passwd; \`, user, UID, GID, home)
	line(`    echo '%s:*:%d:' >>/etc/group; \`, user, GID)
	if r.Kind == KindSandbox {
		line("%s", places)
	} else {
		line(`    install -d -m 0755 /etc/aisb/gate; \`)
		line(`    install -d -o %d -g %d -m 0755 /var/log/aisb; \`, UID, GID)
	}
	line("%s", emptyRun)
	if r.Kind == KindSandbox {
		line(`    ln -sfn /run/aisb/GUIDE.md /etc/aisb/GUIDE.md; \`) // each session's own
	}
	line(`    %s >%s; \`, listDebs, ManifestPath)
	line("%s", tidy)
}

// listBundled is JavaScript that writes the packages in Node's tarball: npm and corepack,
// and those that npm has within itself.
const listBundled = `const fs = require("fs"), list = dir => fs.readdirSync(dir).sort().forEach(k => { \
        const at = dir + "/" + k; \
        if (k[0] == "@") return list(at); \
        if (k[0] == ".") return; \
        const p = require(at + "/package.json"); \
        console.log("npm", p.name, p.version); \
        if (fs.existsSync(at + "/node_modules")) list(at + "/node_modules"); \
    }); list("/usr/local/lib/node_modules")`

// nodeLayer unpacks the tarball without leaving it in a layer, after a last look
// at its checksum. The mount's z is for SELinux.
func (r Recipe) nodeLayer(line func(string, ...any)) {
	line(`RUN --mount=type=bind,source=%s,target=/tmp/%[1]s,z : Node; set -eu; \`, TarballName)
	line(`    echo '%s  /tmp/%s' | sha256sum -c -; \`, r.Node.SHA256, TarballName)
	line(`    tar -xJf /tmp/%s -C /usr/local --strip-components=1 --no-same-owner; \`, TarballName)
	line(`    rm -f /usr/local/CHANGELOG.md /usr/local/README.md; \`)
	line(`    test "$(node --version)" = v%s; \`, r.Node.Version)
	line(`    echo 'node %s' >>%s; \`, r.Node.Version, ManifestPath)
	line(`    node -e '%s' >>%s`, listBundled, ManifestPath)
}

// stepForm finds the name that a RUN of ours has.
var stepForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^RUN (?:--[^ ]+ )*: ([^;]+);`) })

// StepName is what to show people of an instruction of a Containerfile of ours.
func StepName(instruction string) string {
	if m := stepForm().FindStringSubmatch(instruction); m != nil {
		return m[1]
	}
	if strings.HasPrefix(instruction, "LABEL ") {
		return "LABEL"
	}
	return instruction
}
