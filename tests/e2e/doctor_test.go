//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

// What the doctor tries without any image of ours is broken, one thing at a time, by the
// pasta that podman finds: it runs in podman's user namespace, when the container's network
// is there and its command does not run yet. Not parallel: podman's service is everybody's.
func TestDoctorBeforeAnyImage(t *testing.T) {
	real, err := exec.LookPath("pasta")
	if err != nil {
		t.Fatal(err)
	}
	b := newBox(t)
	bin, own := t.TempDir(), t.TempDir()
	tmp := filepath.Join(own, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	b.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "TMPDIR=" + tmp, "XDG_STATE_HOME=" + own, "XDG_CACHE_HOME=" + filepath.Join(own, "cache")}
	pasta := func(script string) {
		t.Helper()
		text := "#!/bin/sh\ncase $* in *--netns*) ;; *) exec " + real + " \"$@\" ;; esac\n" + strings.ReplaceAll(script, "PASTA", real) + "\n"
		if err := errors.Join(drive.WriteProgram(filepath.Join(bin, "new"), []byte(text)), os.Rename(filepath.Join(bin, "new"), filepath.Join(bin, "pasta"))); err != nil {
			t.Fatal(err)
		}
	}
	left := func() string {
		found, err := filepath.Glob(filepath.Join(tmp, "aisb-doctor-*"))
		if err != nil {
			t.Fatal(err)
		}
		return drive.Output(t, "podman", "images", "-aq", "--filter", "label=aisb.recipe=trial") + strings.Join(found, "\n")
	}
	pasta(`exec PASTA "$@"`)
	stopService(t)
	defer stopService(t)

	type check struct {
		Name, Problem, Fix string
		OK, Needed         bool
	}
	doctor := func() (drive.Result, []check) {
		t.Helper()
		r := b.Run("doctor", "--json")
		var d struct {
			OK, Complete bool
			Checks       []check
		}
		if err := json.Unmarshal([]byte(r.Out), &d); err != nil {
			t.Fatalf("%v: %s", err, r)
		}
		if d.OK != (r.Code == 0) || d.OK && !d.Complete {
			t.Errorf("ok is %v and complete %v: %s", d.OK, d.Complete, r)
		}
		if got := left(); got != "" {
			t.Errorf("it has left %s", got)
		}
		return r, slices.DeleteFunc(d.Checks, func(c check) bool { return c.OK || !c.Needed })
	}
	well := func() {
		t.Helper()
		r, bad := doctor()
		if len(bad) > 0 {
			t.Fatalf("the positive control: %+v", bad)
		}
		for _, name := range []string{"sandbox", "nftables", "bind mount", "loopback"} {
			if !strings.Contains(r.Out, `"name": "`+name+`"`) {
				t.Errorf("no check %s: %s", name, r)
			}
		}
		if !strings.Contains(r.Out, "none built yet") {
			t.Errorf("there is an image: %s", r)
		}
	}
	well()
	for _, c := range []struct{ what, script, name, says, fix string }{
		{"it maps nothing", `for a do shift; test "$last" != --map-host-loopback || a=none; set -- "$@" "$a"; last=$a; done; exec PASTA "$@"`,
			"loopback", "canary", "passt"},
		{"it does not start", `echo planted >&2; exit 1`, "loopback", "planted", "passt"},
		{"another has the file", `chown 5:5 "$TMPDIR"/aisb-doctor-*/outside; chmod 644 "$TMPDIR"/aisb-doctor-*/outside; exec PASTA "$@"`,
			"bind mount", "belongs to uid", "findmnt --target "},
		{"another table is there", `PASTA "$@"; code=$?; for a do test "$last" != --netns || nsenter --net="$a" nft add table inet other; last=$a; done; exit $code`,
			"nftables", `tables are ["other`, "ai-sandbox logs "},
	} {
		pasta(c.script)
		r, bad := doctor()
		if r.Code != 1 || len(bad) != 1 || strings.Contains(bad[0].Problem, "\n") || bad[0].Name != c.name || !strings.Contains(bad[0].Problem, c.says) || !strings.Contains(bad[0].Fix, c.fix) {
			t.Errorf("%s: %+v: %s", c.what, bad, r)
		}
	}

	// It is killed in the middle: clean takes all of it away, and nothing else.
	mark, go_ := filepath.Join(own, "waits"), filepath.Join(own, "go")
	pasta(`: >` + mark + `; until test -e ` + go_ + `; do sleep 0.05; done; exec PASTA "$@"`)
	ctx, cancel := context.WithTimeout(t.Context(), drive.RunTime)
	defer cancel()
	cmd := b.Command(ctx, "doctor")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drive.Eventually(t, drive.RunTime, "the start of its sandbox", func() bool { _, err := os.Stat(mark); return err == nil })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if err := os.WriteFile(go_, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if strings.Count(strings.TrimSpace(left()), "\n") != 1 {
		t.Errorf("the positive control: an image and a directory are left, and not %q", left())
	}
	drive.Eventually(t, time.Minute, "the end of what a killed doctor has left", func() bool {
		r := b.Run("clean") // podman may be in the middle of something
		return r.Code == 0 && left() == ""
	})
	well()
}
