// The machine's own directories, which stand for an image on the local runtime.

package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ai-sandbox/policy"
)

// systemTops are the directories with programs and libraries. All but the first
// and the last are links into the first on most machines.
var systemTops = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt"}

// systemEtc is what is seen of /etc, as patterns: what programs need of it to
// work at all, and no more. Left out on purpose:
//   - passwd, group, hosts, nsswitch.conf: the policy makes its own, and has
//     resolv.conf where there is a network;
//   - machine-id, hostname: they tell machines apart;
//   - shadow, ssh, ssl/private, pki as a whole, sudoers, gitconfig, npmrc, pip.conf,
//     krb5*: there are keys and tokens in them on some machines;
//   - profile, profile.d, environment, bash.bashrc: they would set PATH and proxies
//     in a login shell, against the policy, and hold tokens on some machines.
var systemEtc = []string{
	// Which of several programs a name means: /usr/bin leads through it.
	"alternatives",
	// Where the loader finds libraries in unusual places.
	"ld.so.cache",
	// CA certificates and how TLS is spoken: Debian and others, Arch, Fedora.
	"ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf",
	"ca-certificates/extracted",
	"pki/ca-trust/extracted", "pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "crypto-policies",
	// What system this is, and its time zone.
	"os-release", "debian_version", "lsb-release", "localtime", "timezone",
	// Names of types, ports, locales, fonts and terminals.
	"mime.types", "magic", "protocols", "services", "locale.alias", "fonts", "terminfo", "inputrc",
	// Parts of language runtimes that distributions keep here.
	"java-*", "python3*", "perl", "dotnet",
}

// SystemMounts lists what is there of both, read-only, in an order that does not
// change.
func SystemMounts() []policy.Mount { return systemMounts("/") }

// systemMounts looks at the machine below root.
func systemMounts(root string) []policy.Mount {
	const why = "the machine's own, in place of an image"
	var out []policy.Mount
	for _, name := range systemTops {
		path := filepath.Join(root, name)
		info, err := os.Lstat(path)
		if err != nil {
			continue
		}
		if info.Mode()&os.ModeSymlink != 0 {
			if to, err := os.Readlink(path); err == nil {
				out = append(out, policy.Mount{Kind: policy.KindSymlink, Source: to, Target: "/" + name, Why: why})
			}
			continue
		}
		if info.IsDir() {
			out = append(out, policy.Mount{Kind: policy.KindBind, Source: path, Target: "/" + name, ReadOnly: true, Why: why})
		}
	}
	etc := filepath.Join(root, "etc")
	for _, pattern := range systemEtc {
		names, err := filepath.Glob(filepath.Join(etc, pattern))
		if err != nil {
			panic(err) // the patterns are ours
		}
		for _, path := range names {
			if m, ok := etcMount(root, path); ok {
				m.Why = why
				out = append(out, m)
			}
		}
	}
	return out
}

// etcMount is the mount for one path in /etc: a link where it leads to something
// that is seen inside, a bind of what it is otherwise.
func etcMount(root, path string) (policy.Mount, bool) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return policy.Mount{}, false
	}
	info, err := os.Stat(real)
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		return policy.Mount{}, false
	}
	inside := func(p string) string { return "/" + strings.TrimPrefix(strings.TrimPrefix(p, root), "/") }
	m := policy.Mount{Kind: policy.KindBind, Source: real, Target: inside(path), ReadOnly: true}
	if link, err := os.Lstat(path); err == nil && link.Mode()&os.ModeSymlink != 0 {
		top, _, _ := strings.Cut(strings.TrimPrefix(inside(real), "/"), "/")
		if slices.Contains(systemTops, top) {
			m = policy.Mount{Kind: policy.KindSymlink, Source: inside(real), Target: inside(path)}
		}
	}
	return m, true
}
