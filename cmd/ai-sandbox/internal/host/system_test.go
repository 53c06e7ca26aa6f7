package host

import (
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/policy"
)

// TestSystemMounts: what is seen of a merged machine and of an old one, and what
// is not.
func TestSystemMounts(t *testing.T) {
	for _, c := range []struct {
		tree []string
		want string
	}{
		{[]string{"usr/bin/x", "bin -> usr/bin", "lib64 -> usr/lib64", "opt/", "home/x", "var/x", "root/x",
			"etc/passwd", "etc/shadow", "etc/ssh/ssh_host_key", "etc/machine-id", "etc/hostname", "etc/sudoers", "etc/gitconfig", "etc/npmrc",
			"etc/profile", "etc/profile.d/x", "etc/environment", "etc/resolv.conf", "etc/hosts", "etc/ssl/private/key", "etc/ssl/certs/ca.pem",
			"etc/pki/entitlement/key", "etc/pki/tls/certs/ca.pem", "etc/java-17/x", "etc/java-21/x", "etc/alternatives/x",
			"usr/share/zoneinfo/UTC", "etc/localtime -> /usr/share/zoneinfo/UTC", "usr/lib/os-release", "etc/os-release -> ../usr/lib/os-release",
			"var/lib/services", "etc/services -> /var/lib/services", "etc/protocols -> /nowhere"},
			"/usr=/usr /bin->usr/bin /lib64->usr/lib64 /opt=/opt /etc/alternatives=/etc/alternatives /etc/ssl/certs=/etc/ssl/certs " +
				"/etc/pki/tls/certs=/etc/pki/tls/certs /etc/os-release->/usr/lib/os-release /etc/localtime->/usr/share/zoneinfo/UTC " +
				"/etc/services=/var/lib/services /etc/java-17=/etc/java-17 /etc/java-21=/etc/java-21"},
		{[]string{"usr/bin/x", "bin/x", "sbin/x", "lib/x"}, "/usr=/usr /bin=/bin /sbin=/sbin /lib=/lib"},
	} {
		base, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		tree(t, base, c.tree...)
		var got []string
		for _, m := range systemMounts(base) {
			if m.Kind == policy.KindSymlink {
				got = append(got, m.Target+"->"+m.Source)
				continue
			}
			if m.Kind != policy.KindBind || !m.ReadOnly || m.Why == "" {
				t.Errorf("%+v", m)
			}
			got = append(got, m.Target+"="+strings.TrimPrefix(m.Source, base))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("got  %s\nwant %s", strings.Join(got, " "), c.want)
		}
	}
}
