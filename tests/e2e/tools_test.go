//go:build e2e

package e2e

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

// killWait ends a process that is not a child.
func killWait(t *testing.T, p process) {
	t.Helper()
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	drive.Eventually(t, 10*time.Second, "the end of "+p.String(), func() bool { return errors.Is(syscall.Kill(p.pid, 0), syscall.ESRCH) || isZombie(p.pid) })
}

func isZombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

func removeAll(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// removeStore removes a podman store: its files belong to subordinate ids.
func removeStore(t *testing.T, dir string) {
	t.Helper()
	drive.Output(t, "podman", "unshare", "rm", "-rf", "--one-file-system", dir)
}

// listTar is one line for each file of an archive: type, mode, owner, name, link
// and checksum. Times are not content.
func listTar(r io.Reader) (string, error) {
	var lines []string
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", err
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, archive); err != nil {
			return "", err
		}
		lines = append(lines, fmt.Sprintf("%c %o %d:%d %s -> %q %x", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Name, h.Linkname, sum.Sum(nil)[:8]))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}
