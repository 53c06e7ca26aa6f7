package local

import (
	"strings"
	"testing"

	"ai-sandbox/policy"
)

// table is what the kernel shows of a jail with these mounts.
const table = `170 147 0:64 /newroot / ro,nosuid,nodev,relatime - tmpfs tmpfs rw
171 170 254:0 /usr /usr ro,nosuid,nodev,relatime - ext4 /dev/vda rw
172 170 0:65 / /proc ro,nosuid,nodev,noexec,relatime - proc proc rw
173 172 0:65 /irq /proc/irq ro,nosuid,nodev,noexec,relatime - proc proc rw
174 172 0:6 /null /proc/keys ro,nosuid,nodev,relatime - devtmpfs devtmpfs rw
175 170 0:66 / /dev ro,nosuid,nodev,relatime - tmpfs tmpfs rw,mode=755
176 175 0:6 /null /dev/null ro,nosuid,relatime - devtmpfs devtmpfs rw
177 175 0:6 /zero /dev/zero ro,nosuid,relatime - devtmpfs devtmpfs rw
178 175 0:6 /full /dev/full ro,nosuid,relatime - devtmpfs devtmpfs rw
179 175 0:6 /random /dev/random ro,nosuid,relatime - devtmpfs devtmpfs rw
180 175 0:6 /urandom /dev/urandom ro,nosuid,relatime - devtmpfs devtmpfs rw
181 175 0:6 /tty /dev/tty ro,nosuid,relatime - devtmpfs devtmpfs rw
182 175 0:67 / /dev/pts rw,nosuid,noexec,relatime - devpts devpts rw
183 170 0:68 / /tmp rw,nosuid,nodev,relatime - tmpfs tmpfs rw
184 170 254:0 /home/dev/my\040shop /home/dev/my\040shop rw,nosuid,nodev - ext4 /dev/vda rw
185 170 254:0 /state/e /run/aisb-entrypoint ro,nosuid,nodev - ext4 /dev/vda rw
`

var tableMounts = []policy.Mount{
	{Kind: policy.KindBind, Source: "/usr", Target: "/usr", ReadOnly: true},
	{Kind: policy.KindSymlink, Source: "usr/bin", Target: "/bin"},
	{Kind: policy.KindProc, Target: "/proc", ReadOnly: true},
	{Kind: policy.KindDev, Target: "/dev", ReadOnly: true},
	{Kind: policy.KindTmpfs, Target: "/tmp"},
	{Kind: policy.KindFile, Target: "/etc/hosts"},
	{Kind: policy.KindBind, Source: "/home/dev/my shop", Target: "/home/dev/my shop"},
	{Kind: policy.KindProgram, Target: "/run/aisb-entrypoint", ReadOnly: true},
}

func TestCompareMounts(t *testing.T) {
	masks := []mask{{"/proc/keys", false}}
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{" /tmp rw", " /tmp ro", "/tmp is read-only"},
		{" /usr ro", " /usr rw", "/usr is writable"},
		{" / ro", " / rw", "/ is writable"},
		{" /proc ro", " /proc rw", "/proc is writable"},
		{" /dev/null ro", " /dev/null rw", "/dev/null is writable"},
		{" /tmp rw,nosuid,nodev", " /tmp rw,nosuid", "/tmp lets devices work"},
		{" /usr ro,nosuid,nodev", " /usr ro,nodev", "/usr lets programs change the user"},
		{" /tmp rw,nosuid,nodev,relatime - tmpfs", " /tmp rw,nosuid,nodev,relatime - ext4", "/tmp is of type ext4, and not tmpfs"},
		{"185 170", "186 170 0:1 / /opt ro,nosuid,nodev - ext4 x rw\n185 170", "/opt is mounted"},
		{"185 170", "186 170 0:1 / /usr/x ro,nosuid,nodev - ext4 x rw\n185 170", ""}, // the host's, below what is bound
		{"185 170", "186 170 0:1 / /usr/x rw,nosuid,nodev - ext4 x rw\n185 170", "/usr/x is mounted"},
		{"185 170", "186 170 0:1 / /tmp/x ro,nosuid,nodev - ext4 x rw\n185 170", "/tmp/x is mounted"},
		{"185 170", "186 170 0:1 / /usr ro,nosuid,nodev - ext4 x rw\n185 170", "/usr is mounted twice"},
		{"183 170 0:68 / /tmp rw,nosuid,nodev,relatime - tmpfs tmpfs rw\n", "", "nothing is mounted at /tmp"},
		{"174 172 0:6 /null /proc/keys ro,nosuid,nodev,relatime - devtmpfs devtmpfs rw\n", "", "nothing is mounted at /proc/keys"},
		{"173 172 0:65 /irq /proc/irq ro,nosuid,nodev,noexec,relatime - proc proc rw\n", "", ""}, // root's alone
	} {
		changed := strings.Replace(table, c.old, c.new, 1)
		if c.old != c.new && changed == table {
			t.Fatalf("%q is not in the table", c.old)
		}
		got, err := parseMounts([]byte(changed))
		if err != nil {
			t.Fatal(err)
		}
		if problems := strings.Join(compareMounts(got, tableMounts, masks, true), "; "); problems != c.want {
			t.Errorf("%q for %q: %q, and not %q", c.new, c.old, problems, c.want)
		}
	}
	// A user does not own the nodes.
	got, err := parseMounts([]byte(strings.ReplaceAll(table, "ro,nosuid,relatime", "rw,nosuid,relatime")))
	if err != nil {
		t.Fatal(err)
	}
	if problems := compareMounts(got, tableMounts, masks, false); len(problems) > 0 {
		t.Errorf("a user's nodes: %q", problems)
	}
	if _, err := parseMounts([]byte("nonsense\n")); err == nil {
		t.Error("nonsense is read")
	}
}
