// The report file. It may lie in the project, which the command can write, and an
// earlier one could: the directory is opened before the command runs, and the file
// in it replaced, without following a link on the way.

package engine

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/protect"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
)

type reportFile struct {
	dir  int
	name string
}

// openReport finds out before the run that there is a place for the report.
func openReport(path, project string) (*reportFile, error) {
	dir, err := protect.OpenDir(filepath.Dir(path), project)
	if err != nil {
		return nil, fmt.Errorf("report %s: open its directory: %w", path, err)
	}
	r := &reportFile{dir: dir, name: filepath.Base(path)}
	var st unix.Stat_t
	err = unix.Fstatat(dir, r.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.Join(fmt.Errorf("report %s is not a regular file: name another", path), unix.Close(dir))
	}
	// An earlier run's report is not to be taken for this one's.
	if err == nil {
		if err := unix.Unlinkat(dir, r.name, 0); err != nil {
			return nil, errors.Join(fmt.Errorf("report %s: remove the old one: %w", path, err), unix.Close(dir))
		}
	}
	if err := unix.Faccessat(dir, ".", unix.W_OK, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("report %s: its directory can't be written: %w", path, err), unix.Close(dir))
	}
	return r, nil
}

func (r *reportFile) write(rep session.Report) (err error) {
	defer func() { err = errors.Join(err, unix.Close(r.dir)) }()
	b, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	// Not to be guessed: the command may have made any other name.
	tmp := ".aisb-report-" + rand.Text()
	fd, err := unix.Openat(r.dir, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	f := os.NewFile(uintptr(fd), tmp)
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = unix.Renameat(r.dir, tmp, r.dir, r.name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the report: %w", err), unix.Unlinkat(r.dir, tmp, 0))
	}
	return nil
}
