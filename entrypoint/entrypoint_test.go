package entrypoint

import (
	"strings"
	"testing"
	"time"
)

// podmanMounts are lines of mountinfo in a sandbox of podman 5.4.
const podmanMounts = `149 155 0:55 /proj /proj rw,nosuid,nodev,relatime - tmpfs tmp rw
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
		{name: "resolvers", policy: policy, old: "/proc/acpi", new: "/etc/resolv.conf", want: "/etc/resolv.conf is mounted"},
		{name: "twice", policy: policy, old: "/x /a\\040b", new: "/x /proj", want: "/proj is mounted twice"},
	} {
		mounts, err := parseMounts([]byte(strings.Replace(podmanMounts, c.old, c.new, 1)))
		if err == nil {
			err = compareMounts(mounts, c.policy)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := parseMounts([]byte("1 2 3\n")); err == nil {
		t.Error("half a line was understood")
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
