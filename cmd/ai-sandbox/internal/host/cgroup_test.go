package host

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"ai-sandbox/policy"
)

func TestProbeCgroups(t *testing.T) {
	uid := os.Getuid()
	service := "sys/fs/cgroup/system.slice"
	if id := strconv.Itoa(uid); uid != 0 {
		service = "sys/fs/cgroup/user.slice/user-" + id + ".slice/user@" + id + ".service"
	}
	for name, tc := range map[string]struct {
		v2, session bool
		controllers string
		why         string // part of it
		lacks       string // the limits that can't be held
	}{
		"all":         {true, true, "cpu memory pids", "", ""},
		"no cpu":      {true, true, "memory pids", "", "cpus"},
		"no session":  {true, false, "cpu memory pids", "systemd", "memory cpus"},
		"version one": {false, true, "", "version 2", "memory cpus"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			file := func(path, text string) {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if tc.v2 {
				file("sys/fs/cgroup/cgroup.controllers", "cpu memory pids io\n")
				file(service+"/cgroup.controllers", tc.controllers+"\n")
			}
			file("run/systemd/x", "")
			if tc.session {
				l, err := net.Listen("unix", filepath.Join(root, "run/systemd/private"))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
			}
			c := probeCgroups(root, uid, filepath.Join(root, "run"), "dev")
			if tc.why == "" && c.Why != "" || !strings.Contains(c.Why, tc.why) {
				t.Errorf("why %q", c.Why)
			}
			c.CountsByNamespace = true
			f := Facts{UID: 7, Cgroups: c}
			l := f.LimitFacts()
			var lacks []string
			for _, one := range []struct {
				key string
				e   policy.Enforcement
			}{{"memory", l.Memory}, {"cpus", l.CPUs}, {"pids", l.Pids}} {
				if one.e.By == "" {
					lacks = append(lacks, one.key)
					if one.e.Why == "" {
						t.Errorf("%s: no reason", one.key)
					}
				}
			}
			if got := strings.Join(lacks, " "); got != tc.lacks {
				t.Errorf("lacks %q", got)
			}
			if tc.lacks == "memory cpus" && l.Pids.By != policy.ByRlimit {
				t.Errorf("pids by %q", l.Pids.By)
			}
			f.UID = 0 // RLIMIT_NPROC does not hold root
			if l = f.LimitFacts(); tc.lacks == "memory cpus" && l.Pids.By != "" {
				t.Errorf("root's pids by %q", l.Pids.By)
			}
			if v := limits(f); v.OK() == (tc.lacks != "") || !v.Info {
				t.Errorf("the doctor says %+v", v)
			}
		})
	}
}

func TestCountsByNamespace(t *testing.T) {
	for release, want := range map[string]bool{
		"5.14.0-1": true, "6.12.118+deb13-cloud-amd64": true, "5.13.19": false, "4.18.0": false, "": false, "x": false,
	} {
		if countsByNamespace(release) != want {
			t.Errorf("%q: not %v", release, want)
		}
	}
}
