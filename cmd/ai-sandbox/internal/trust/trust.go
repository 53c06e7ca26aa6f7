// Package trust keeps what the user has said about projects' own configuration
// files, and decides whether a run may obey one. Such a file lies where the
// sandboxed command writes: one that only narrows a run is obeyed as it is, and
// any other only when the user has seen every setting of it.
package trust

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
)

// A Store is the directory of the records, below the user's state. The sandbox
// sees nothing of it.
type Store struct{ dir string }

// In is the store below a state directory.
func In(state string) Store { return Store{filepath.Join(state, "trust")} }

// A record says that the user has seen these settings of a project and trusts
// them there.
type record struct {
	Version int    `json:"version"`
	Project string `json:"project"` // resolved
	// SHA256 is over the project's path, the settings and the scripts.
	SHA256 string `json:"sha256"`
	// Settings are config.File.Canonical, and Scripts the file's.
	Settings string              `json:"settings"`
	Scripts  []config.ScriptFile `json:"scripts,omitempty"`
}

const version = 1

// maxRecord is more than the longest file becomes as JSON, with the scripts of some
// profiles.
const maxRecord = 8 << 20

// sum has no two records alike: there is no NUL in any of it.
func sum(project, settings string, scripts []config.ScriptFile) string {
	text := "ai-sandbox project configuration 1\x00" + project + "\x00" + settings
	for _, s := range scripts {
		text += "\x00" + s.Path + "\x00" + s.Text
	}
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

func (s Store) path(project string) string {
	h := sha256.Sum256([]byte(project))
	return filepath.Join(s.dir, hex.EncodeToString(h[:])+".json")
}

// Load is the file that was trusted in a project; ok is false where none was. A
// record that makes no sense, or that another user could have written, is an
// error.
func (s Store) Load(project string) (file config.File, ok bool, err error) {
	path := s.path(project)
	p, err := s.read(path, project, path)
	if errors.Is(err, fs.ErrNotExist) {
		return config.File{}, false, nil
	}
	return p.File, err == nil, err
}

// A Project is one with the file that was trusted in it.
type Project struct {
	Path string // resolved
	config.File
}

// All are those in which something is trusted, with the settings as if the files had
// just been read. A damaged record is an error.
func (s Store) All() ([]Project, error) {
	names, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what is trusted: %w", err)
	}
	var out []Project
	for _, n := range names {
		if filepath.Ext(n.Name()) != ".json" { // one that is being written
			continue
		}
		p, err := s.read(filepath.Join(s.dir, n.Name()), "", config.ProjectFile)
		if errors.Is(err, fs.ErrNotExist) { // taken back meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// read reads a record, which has to be of that project, or of any if that is "". name
// is what its settings' origins have as their file. The error is fs.ErrNotExist where
// there is none.
func (s Store) read(path, project, name string) (Project, error) {
	bad := func(why string) (Project, error) {
		return Project{}, fmt.Errorf("the record of what is trusted here, %s, %s; remove it, look at the project's file again and trust it", path, why)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Project{}, fmt.Errorf("read what is trusted here: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return Project{}, fmt.Errorf("read what is trusted here: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o022 != 0 || !ours(info) {
		return bad("is not a file that this user alone can write")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return Project{}, fmt.Errorf("read what is trusted here: %w", err)
	}
	p, err := parse(name, project, data)
	switch {
	case err != nil:
		return bad(err.Error())
	case s.path(p.Path) != path:
		return bad("is another project's")
	}
	return p, nil
}

// parse reads the record of a project, or of any where that is "".
func parse(name, project string, data []byte) (Project, error) {
	var r record
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil || r.Version != version || project != "" && r.Project != project || r.SHA256 != sum(r.Project, r.Settings, r.Scripts) {
		return Project{}, errors.New("is damaged")
	}
	file, err := config.ParseProject(name, []byte(r.Settings))
	if err != nil {
		return Project{}, errors.New("holds what this version does not know")
	}
	file.Scripts = r.Scripts
	return Project{r.Project, file}, nil
}

// Save records that a file is trusted in a project: whole or not at all.
func (s Store) Save(project string, file config.File) error {
	settings := file.Canonical()
	data, err := json.MarshalIndent(record{version, project, sum(project, settings, file.Scripts), settings, file.Scripts}, "", "  ")
	if err == nil && len(data) >= maxRecord {
		err = fmt.Errorf("the scripts are longer than %d MiB together; name fewer", maxRecord>>20)
	}
	if err == nil {
		err = s.write(s.path(project), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("record what is trusted: %w", err)
	}
	return nil
}

func (s Store) write(path string, data []byte) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(s.dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ours(info) {
		return fmt.Errorf("%s is open to other users; make it yours alone, of mode 0700", s.dir)
	}
	tmp, err := os.CreateTemp(s.dir, ".new-*") // of mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// Forget takes back what was trusted in a project, and tells whether there was
// anything.
func (s Store) Forget(project string) (bool, error) {
	err := os.Remove(s.path(project))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("forget what is trusted: %w", err)
	}
	return true, nil
}

func ours(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}
