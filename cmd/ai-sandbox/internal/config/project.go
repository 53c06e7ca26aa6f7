// The project's file. What lies in the project may have been written by a
// sandboxed command, so nothing of it is trusted to be what it seems.

package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ProjectFile is the project's file, below the project. It is also what errors
// and origins call it.
const (
	ProjectFile = projectDir + "/" + FileName
	projectDir  = ".ai-sandbox"
)

// maxProjectFile is what one can be expected to look through.
const maxProjectFile = 64 << 10

// ReadProject reads the file of the project at a resolved path, which has to be
// the directory with that device and inode. Without one it is empty. It follows
// no symlink below the project (each name is opened by itself), and anything but
// a plain file is an error: to take a link or a FIFO for no file at all would be
// a way to get rid of what the file forbids.
func ReadProject(project string, dev, ino uint64) (File, error) {
	data, err := readBeneath(project, dev, ino)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return File{}, nil
	case err != nil:
		return File{}, err
	}
	f, err := ParseProject(ProjectFile, data)
	if err == nil {
		err = f.readScripts(project, dev, ino)
	}
	return f, err
}

func readBeneath(project string, dev, ino uint64) ([]byte, error) {
	bad := func(name, text string) error {
		return &Error{Origin: filepath.Join(project, name), Text: text, Fix: "look at what made it, and put it right"}
	}
	root, err := openRoot(project, dev, ino)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(root) }()
	dir, err := openat(root, projectDir, unix.O_PATH|unix.O_DIRECTORY)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, bad(projectDir, "the project's configuration lies in something that is not a directory")
	case err != nil:
		return nil, fmt.Errorf("open the project's %s: %w", projectDir, err)
	}
	defer func() { _ = unix.Close(dir) }()
	// A FIFO would wait for a writer, and a terminal become ours.
	fd, err := openat(dir, FileName, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, bad(ProjectFile, "the project's configuration is a symlink")
	case errors.Is(err, unix.ENXIO): // a socket
		return nil, bad(ProjectFile, "the project's configuration is not a regular file")
	case err != nil:
		return nil, fmt.Errorf("open the project's %s: %w", ProjectFile, err)
	}
	f := os.NewFile(uintptr(fd), ProjectFile)
	defer func() { _ = f.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, bad(ProjectFile, "the project's configuration is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxProjectFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the project's %s: %w", ProjectFile, err)
	case len(data) > maxProjectFile:
		return nil, bad(ProjectFile, fmt.Sprintf("the project's configuration is longer than %d KiB", maxProjectFile>>10))
	}
	return data, nil
}

// openRoot opens the project, which has to be the directory with that device and inode.
func openRoot(project string, dev, ino uint64) (int, error) {
	root, err := unix.Open(project, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the project directory: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil || st.Dev != dev || st.Ino != ino {
		_ = unix.Close(root)
		return -1, &Error{Origin: project, Text: "the project directory has changed meanwhile", Fix: "start again"}
	}
	return root, nil
}

// openat opens one name in a directory, and no link.
func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// A Line is one line of a file's canonical form. Profile is the one that it
// stands in, or begins: then the Item is zero. A line of a script has none either.
type Line struct {
	Profile, Text string
	Script        bool
	Item
}

// Lines are every setting of the file in order, without comments and white space
// around them.
func (f File) Lines() []Line {
	var out []Line
	add := func(profile string, items []Item) {
		for _, it := range items {
			out = append(out, Line{Profile: profile, Text: strings.TrimSuffix(it.Key+" = "+it.Value, " "), Item: it})
		}
	}
	add("", f.Items)
	for _, p := range f.Profiles {
		out = append(out, Line{Profile: p.Name, Text: "[profile " + p.Name + "]"})
		add(p.Name, p.Items)
	}
	return out
}

// Canonical are the file's Lines as a text, which ParseProject reads back as the
// same settings: what is trusted, and what a printout shows.
func (f File) Canonical() string {
	var b strings.Builder
	for _, l := range f.Lines() {
		b.WriteString(l.Text + "\n")
	}
	return b.String()
}

// FromProject tells whether the item stands in the project's file.
func (it Item) FromProject() bool {
	origin := it.Origin
	if _, at, ok := strings.Cut(origin, " ("); ok && strings.HasPrefix(origin, "profile ") {
		origin = at
	}
	return strings.HasPrefix(origin, ProjectFile+":")
}
