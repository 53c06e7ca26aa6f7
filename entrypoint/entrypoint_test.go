package entrypoint

import (
	"strings"
	"testing"
	"time"

	"ai-sandbox/entrypoint/spec"
)

// podmanMounts are lines of mountinfo in a sandbox of podman 5.4.
const podmanMounts = `149 155 0:55 / /proj rw,nosuid,nodev,relatime - tmpfs tmp rw
154 155 254:0 /x /a\040b ro,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
155 125 0:60 / / ro,relatime - overlay overlay rw,lowerdir=/l
156 155 0:63 / /dev ro,nosuid - tmpfs tmpfs rw
157 155 0:64 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs rw
159 155 0:66 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
163 156 0:51 /null /dev/null rw,nosuid,noexec,relatime - devtmpfs dev rw
169 159 0:68 / /proc/acpi ro,relatime - tmpfs tmpfs rw,size=0k
162 157 0:38 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw
`

func TestMounts(t *testing.T) {
	policy := []string{"/proj", "/a b"}
	for _, c := range []struct {
		name, old, new string
		policy         []string
		want           string
	}{
		{name: "as it is", policy: policy},
		{name: "not in the policy", policy: policy[:1], want: "/a b is mounted and not in the policy"},
		{name: "not mounted", policy: append([]string{"/tmp"}, policy...), want: "/tmp is in the policy and not mounted"},
		{name: "writable root", policy: policy, old: "/ / ro,", new: "/ / rw,", want: "writable"},
		{name: "root option that only begins so", policy: policy, old: "/ / ro,", new: "/ / rootmode,", want: "writable"},
		{name: "another file system as proc", policy: policy, old: "- proc proc", new: "- tmpfs x", want: "/proc is mounted"},
		{name: "writable mask", policy: policy, old: "/proc/acpi ro", new: "/proc/acpi rw", want: "/proc/acpi is mounted"},
		{name: "writable bind", policy: policy, old: "/a\\040b ro", new: "/a\\040b rw", want: "/a b is writable"},
		{name: "bind instead of a tmpfs", policy: policy, old: "- tmpfs tmp ", new: "- ext4 x ", want: "/proj is not the tmpfs"},
		{name: "below a read-only bind", policy: policy, old: "/ /sys ro", new: "/ /a\\040b/c ro"},
		{name: "below a read-only bind, writable", policy: policy, old: "/ /sys ro", new: "/ /a\\040b/c rw", want: "/a b/c is mounted"},
		{name: "no root", policy: policy, old: "/ / ro", new: "/ /proc/keys ro", want: "no root"},
		{name: "resolvers", policy: policy, old: "/proc/acpi", new: "/etc/resolv.conf", want: "/etc/resolv.conf is mounted"},
		{name: "twice", policy: policy, old: "/x /a\\040b", new: "/x /proj", want: "/proj is mounted twice"},
	} {
		mounts, err := parseMounts([]byte(strings.Replace(podmanMounts, c.old, c.new, 1)))
		if err == nil {
			err = compareMounts(mounts, &spec.Spec{Mounts: c.policy, ReadOnly: []string{"/a b"}, Tmpfs: []string{"/proj"}})
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := parseMounts([]byte("1 2 3\n")); err == nil {
		t.Error("half a line was understood")
	}
}

// jailMountinfo are lines of mountinfo in a jail that bubblewrap 0.12 has made as
// root.
const jailMountinfo = `282 255 0:101 /newroot / ro,nosuid,nodev,relatime - tmpfs tmpfs rw
335 282 254:0 /usr /usr ro,nosuid,nodev,relatime - ext4 /dev/vda rw,discard
336 335 254:1 / /usr/share ro,nosuid,nodev,relatime master:36 - ext4 /dev/vdb rw,discard
337 282 0:102 / /proc ro,nosuid,nodev,noexec,relatime - proc proc rw
338 337 0:102 /irq /proc/irq ro,nosuid,nodev,noexec,relatime - proc proc rw
339 282 254:0 /home/u/proj /usr/local/proj rw,nosuid,nodev,relatime - ext4 /dev/vda rw,discard
340 282 0:103 / /dev rw,nosuid,nodev,relatime - tmpfs tmpfs rw,mode=755
341 340 0:92 /null /dev/null rw,nosuid,relatime master:26 - tmpfs dev rw,size=64k,mode=755
347 340 0:104 / /dev/pts rw,nosuid,noexec,relatime - devpts devpts rw,mode=620,ptmxmode=666
348 282 0:105 / /tmp rw,nosuid,nodev,relatime - tmpfs tmpfs rw,mode=755
`

func TestJailMounts(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{name: "as it is"},
		{name: "below a read-only bind, writable", old: "/usr/share ro", new: "/usr/share rw", want: "/usr/share is mounted"},
		{name: "below the project", old: " /usr/share ", new: " /usr/local/proj/x ", want: "proj/x is mounted"},
		{name: "beside a bind", old: " /usr/share ", new: " /usrshare ", want: "/usrshare is mounted"},
		{name: "below a tmpfs", old: " /usr/share ", new: " /tmp/x ", want: "/tmp/x is mounted"},
		{name: "read-only bind, writable", old: " /usr ro", new: " /usr rw", want: "/usr is writable"},
		{name: "the machine's root", old: "- tmpfs tmpfs rw\n335", new: "- ext4 /dev/vda rw\n335", want: "root file system is not bubblewrap's"},
		{name: "a tmpfs of the machine as the root", old: "/newroot / ro", new: "/ / ro", want: "root file system is not bubblewrap's"},
		{name: "part of a tmpfs as a tmpfs", old: "/ /tmp ", new: "/x /tmp ", want: "/tmp is not the tmpfs"},
		{name: "another root on top", old: "/ /usr/share ro", new: "/ / ro", want: "/ is mounted twice"},
		{name: "writable root", old: "/newroot / ro", new: "/newroot / rw", want: "root file system is writable"},
		{name: "writable proc", old: "/ /proc ro", new: "/ /proc rw", want: "/proc is mounted"},
		{name: "something on a device", old: "/ /usr/share ro", new: "/ /dev/null ro", want: "/dev/null is mounted twice"},
		{name: "another device", old: " /dev/null ", new: " /dev/vda ", want: "/dev/vda is mounted"},
		{name: "dev of the machine", old: "/ /dev rw,nosuid,nodev,relatime - tmpfs", new: "/ /dev rw,nosuid,nodev,relatime - devtmpfs", want: "/dev is mounted"},
		{name: "sysfs", old: "/ /usr/share ro", new: "/ /sys ro", want: "/sys is mounted"},
	} {
		mounts, err := parseMounts([]byte(strings.Replace(jailMountinfo, c.old, c.new, 1)))
		if err == nil {
			err = compareMounts(mounts, &spec.Spec{
				Isolation: spec.IsolationProcess, Mounts: []string{"/usr", "/usr/local/proj", "/tmp"},
				ReadOnly: []string{"/usr"}, Tmpfs: []string{"/tmp"},
			})
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestForeignRoute(t *testing.T) {
	const none = "Iface\tDestination\tGateway\n"
	for table, want := range map[string]string{
		none:                              "",
		none + "lo\t0000007F\t00000000\n": "",
		none + "lo\t0\t0\ntap0\t00000000\t0101A8C0\t0003\n": "tap0",
	} {
		if got := foreignRoute(table, 0); got != want {
			t.Errorf("%q: %q", table, got)
		}
	}
	const lo = "00000000000000000000000000000001 80 0 00 0 00000000 00000002 00000000 80200001       lo\n"
	for table, want := range map[string]string{
		"":                                      "",
		lo + lo:                                 "",
		lo + strings.Replace(lo, "lo", "t0", 1): "t0",
		"1 2 3\n":                               "a device that",
	} {
		if got := foreignRoute(table, 9); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%q: %q", table, got)
		}
	}
}

func TestStatus(t *testing.T) {
	const text = "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t \n" +
		"CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n" +
		"CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n"
	want := dropped(1000, 1000)
	if err := checkStatus(parseStatus([]byte(text)), want); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{"Uid:\t1000\t1000\t1000\t1000", "Uid:\t1000\t1000\t1000\t0"},
		{"Gid:\t1000", "Gid:\t0"},
		{"Groups:\t ", "Groups:\t0 "},
		{"CapInh:\t0000000000000000", "CapInh:\t0000000000001000"},
		{"CapBnd:\t0000000000000000", "CapBnd:\t0000000000000001"},
		{"NoNewPrivs:\t1", "NoNewPrivs:\t0"},
		{"CapAmb:\t0000000000000000\n", ""},
	} {
		changed := strings.Replace(text, c[0], c[1], 1)
		if err := checkStatus(parseStatus([]byte(changed)), want); err == nil {
			t.Errorf("%q passes", c[1])
		}
	}
	if err := checkStatus(parseStatus([]byte(text)), filtered(3)); err == nil {
		t.Error("a filter too few passes")
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"session", "x"}, {"gate"}, {"gate", "--detached"}, {"x"}} {
		if code := Main(time.Now(), args); code != 78 {
			t.Errorf("%q: %d", args, code)
		}
	}
}
