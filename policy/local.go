// What the local runtime mounts. It has no image: the machine's own system
// directories stand for one, read-only, and a few files are made for the run.

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// localMounts lists everything that is seen in a jail, parents before what is
// mounted below them. The root is an empty tmpfs that ends read-only: what is
// not listed is not there.
func localMounts(in Input, workdir, home string, limits Limits) []Mount {
	f := in.Facts
	tmp, varTmp := tmpSizes(limits.DiskBytes.Value)
	out := slices.Clone(f.Local.System)
	out = append(out,
		Mount{Kind: KindProc, Target: "/proc", ReadOnly: true, Why: "the sandbox's own processes"},
		Mount{Kind: KindDev, Target: "/dev", ReadOnly: true, Why: "null, zero, full, random, urandom, tty and terminals of its own"},
		Mount{Kind: KindTmpfs, Target: "/dev/shm", SizeBytes: 64 * mib, Mode: "1777", Why: "shared memory"},
		Mount{Kind: KindTmpfs, Target: "/tmp", SizeBytes: tmp, Mode: "1777", Why: "temporary files"},
		Mount{Kind: KindTmpfs, Target: "/var/tmp", SizeBytes: varTmp, Mode: "1777", Why: "temporary files"},
		file("/etc/passwd", users(), "the sandbox's own users"),
		file("/etc/group", groups(), "the sandbox's own groups"),
		file("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n", "loopback only"),
		Mount{Kind: KindSymlink, Source: GuideFile, Target: GuidePath, Why: "the guide"},
		file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n", "names from files"),
	)
	if in.Net == NetHost {
		out = append(out, Mount{Kind: KindBind, Source: "/etc/resolv.conf", Target: "/etc/resolv.conf", ReadOnly: true, Why: "the machine's resolvers, for --net host"})
	}
	if in.ExtraCA {
		out = append(out,
			file(ExtraCA, string(f.Local.ExtraCA), "the extra CA"),
			file(LocalCABundle, string(f.Local.CABundle), "the machine's CA certificates and the extra CA"),
			file(LocalTrustStore, string(f.Local.TrustStore), "the same for Java"))
	}
	out = append(out, f.Local.Tools...)
	out = append(out,
		Mount{Kind: KindBind, Source: f.Local.Homes + "/" + home, Target: HomeDir, Why: WhyHome},
		in.project(workdir, limits),
		Mount{Kind: KindProgram, Target: EntrypointPath, ReadOnly: true, Why: "the entrypoint of this ai-sandbox"},
	)
	out = append(out, channels(in)...)
	return append(out, in.Binds...)
}

// file is a read-only file of ours.
func file(target, content, why string) Mount {
	return Mount{Kind: KindFile, Target: target, ReadOnly: true, Content: []byte(content), ContentSHA256: hash([]byte(content)), Why: why}
}

func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// users is passwd(5): root has to have a name, since system files belong to it.
func users() string {
	return fmt.Sprintf("root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"+
		"sandbox:x:%d:%d:sandbox:%s:/bin/bash\n"+
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n", UID, GID, HomeDir)
}

// groups is group(5).
func groups() string {
	return strings.Join([]string{"root:x:0:", fmt.Sprintf("sandbox:x:%d:", GID), "nogroup:x:65534:", ""}, "\n")
}
