// The scripts that a project's file has run when the image is built. They lie in the
// tree that the sandboxed command writes, and run on a network that no gate guards:
// what is trusted is their content.

package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ai-sandbox/image"
)

// A ScriptFile is a script by the path that the project's file names it with, as it
// was when the file was read.
type ScriptFile struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

// maxScriptPath bounds such a path, in bytes (PATH_MAX, limits.h).
const maxScriptPath = 4096

// scriptPath tells whether s names a file below the project. What begins with ~ is
// taken for one in a home, so no name there does.
func scriptPath(s string) bool {
	return !strings.HasPrefix(s, "~") && len(s) <= maxScriptPath && !path.IsAbs(s) && path.Clean(s) == s && s != "." && s != ".." && !strings.HasPrefix(s, "../")
}

// readScripts reads what the file has run, all profiles' too, following no symlink.
func (f *File) readScripts(project string, dev, ino uint64) error {
	for _, l := range f.Lines() {
		o, _ := Lookup(l.Key) // of a line that begins a profile, none
		if o.Kind != Script || l.Value == "" || slices.ContainsFunc(f.Scripts, func(s ScriptFile) bool { return s.Path == l.Value }) {
			continue
		}
		text, err := readScript(project, dev, ino, l.Value)
		if err == nil {
			err = image.CheckSetup(text)
		}
		if err != nil {
			return &Error{Origin: l.Origin, Text: fmt.Sprintf("%s %q %v", l.Key, l.Value, err), Fix: "name a script in the project"}
		}
		f.Scripts = append(f.Scripts, ScriptFile{l.Value, string(text)})
	}
	return nil
}

// readScript reads a file below the project. Its error says what the file does ("does
// not exist").
func readScript(project string, dev, ino uint64, name string) ([]byte, error) {
	dir, err := openRoot(project, dev, ino)
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	defer func() { _ = unix.Close(dir) }()
	parts := strings.Split(name, "/")
	for i, part := range parts {
		flags := unix.O_PATH | unix.O_DIRECTORY
		if i == len(parts)-1 { // a FIFO would wait for a writer, and a terminal become ours
			flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
		}
		fd, err := openat(dir, part, flags)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, errors.New("does not exist")
		case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
			return nil, errors.New("is a symlink, or lies behind what is not a directory")
		case errors.Is(err, unix.ENXIO): // a socket
			return nil, errors.New("is not a regular file")
		case err != nil:
			return nil, fmt.Errorf("can't be read: %w", err)
		}
		_ = unix.Close(dir)
		dir = fd
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("is not a regular file")
	}
	fd, err := unix.Dup(dir)
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	file := os.NewFile(uintptr(fd), name)
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, image.MaxSetup+1))
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	return text, nil
}

// Script is the content of the script of that path.
func (f File) Script(name string) (text string, ok bool) {
	for _, s := range f.Scripts {
		if s.Path == name {
			return s.Text, true
		}
	}
	return "", false
}

// scriptLines are what the user has to see of the scripts. No setting begins as they
// do.
func (f File) scriptLines() []Line {
	var out []Line
	for _, s := range f.Scripts {
		section := "script " + s.Path // no profile has a name with a space
		out = append(out, Line{Profile: section, Text: "[" + s.Path + ", which is run as root when the image is built]", Script: true})
		for line := range strings.SplitSeq(strings.TrimSuffix(s.Text, "\n"), "\n") {
			out = append(out, Line{Profile: section, Text: "| " + line, Script: true})
		}
		if !strings.HasSuffix(s.Text, "\n") { // as diff(1) says it: it is another script
			out = append(out, Line{Profile: section, Text: "\\ no newline at the end", Script: true})
		}
	}
	return out
}

// Reviewed are the file's Lines, and those of its scripts.
func (f File) Reviewed() []Line { return append(f.Lines(), f.scriptLines()...) }

// Same tells whether two files say the same, and have the same run.
func (f File) Same(other File) bool {
	return f.Canonical() == other.Canonical() && slices.Equal(f.Scripts, other.Scripts)
}
