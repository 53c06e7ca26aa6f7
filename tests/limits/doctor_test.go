//go:build vm

package limits

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A kernel without nftables is told at once and by the modules that it needs; the
// entrypoint has heard so from the kernel.
func TestDoctorNftables(t *testing.T) {
	if os.Getuid() == 0 {
		return // podman's runtime is a user's
	}
	dir, err := os.MkdirTemp(filepath.Join(w.home, "projects"), "doctor")
	if err != nil {
		t.Fatal(err)
	}
	b := newBoxAt(dir, "podman")
	// The namespace of the last session goes by and by, and its rules with it.
	const gone = "n=0; until modprobe -r nft_reject_inet nft_log nft_ct nf_tables; do n=$((n + 1)); test $n -lt 300; sleep 0.2; done"
	const conf = "/etc/modprobe.d/aisb-test.conf"
	broken(t, "echo 'install nf_tables /bin/false' >"+conf+"; "+gone, "rm -f "+conf+"; modprobe nf_tables")
	r := b.wait(b.bare, []string{"doctor", "--json"})
	var d struct {
		Checks []struct {
			Name, Problem, Fix string
			OK, Needed         bool
		}
	}
	if err := json.Unmarshal([]byte(r.Out), &d); err != nil {
		t.Fatalf("%v: %s", err, r)
	}
	bad := 0
	for _, c := range d.Checks {
		if c.OK || !c.Needed {
			continue
		}
		if bad++; c.Name != "nftables" || !strings.Contains(c.Problem, "the kernel has no nftables (the kernel module nf_tables") || !strings.HasPrefix(c.Fix, "sudo modprobe -a nf_tables nft_ct ") {
			t.Errorf("%+v", c)
		}
	}
	if bad != 1 || r.Code != 1 {
		t.Errorf("%d checks failed: %s", bad, r)
	}
	sudo(t, "rm", conf)
	b.run(t, 0, "--", "true") // the kernel loads it by itself
}
