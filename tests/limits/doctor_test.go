//go:build vm

package limits

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A kernel without nftables, or without a part of it, is told at once and by the modules
// that it needs; the entrypoint has heard so from the kernel.
func TestDoctorNftables(t *testing.T) {
	if os.Getuid() == 0 {
		return // podman's runtime is a user's
	}
	dir, err := os.MkdirTemp(filepath.Join(w.home, "projects"), "doctor")
	if err != nil {
		t.Fatal(err)
	}
	b := newBoxAt(dir, "podman")
	doctor := func(says string) {
		t.Helper()
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
			if bad++; c.Name != "nftables" || says == "" || !strings.Contains(c.Problem, says) || !strings.HasPrefix(c.Fix, "sudo modprobe -a nf_tables nft_ct ") {
				t.Errorf("%q: %+v", says, c)
			}
		}
		if want := map[bool]int{true: 0, false: 1}[says == ""]; bad != want || r.Code != want {
			t.Errorf("%q: %d checks failed: %s", says, bad, r)
		}
	}
	// The namespace of the last session goes by and by, and its rules with it.
	const gone = "n=0; until modprobe -r nft_reject_inet nft_log nft_ct nf_tables; do n=$((n + 1)); test $n -lt 300; sleep 0.2; done"
	const conf = "/etc/modprobe.d/aisb-test.conf"
	broken(t, "echo 'install nft_ct /bin/false' >"+conf+"; "+gone, "rm -f "+conf+"; modprobe -a nf_tables nft_ct")
	doctor("lacks a part of nftables (the kernel module nft_ct")
	sudo(t, "sh", "-ec", "echo 'install nf_tables /bin/false' >"+conf+"; "+gone)
	doctor("the kernel has no nftables (the kernel module nf_tables")
	sudo(t, "rm", conf)
	doctor("") // the kernel loads it by itself
}
