// Holding the protected paths while a session lasts: which they were, the
// placeholders, and what became of them.

package protect

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// A seen is a file or directory as it was looked at.
type seen struct {
	dev, ino uint64
	mode     uint32
	uid      uint32
	size     uint64
	changed  int64 // its status, in nanoseconds: nobody can set that
	born     int64 // 0 where the file system does not know
}

func nanos(t unix.StatxTimestamp) int64 { return t.Sec*int64(time.Second) + int64(t.Nsec) }

// look looks at what an O_PATH descriptor stands for, or at a name in it.
func look(fd int, name string) (seen, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var st unix.Statx_t
	if err := unix.Statx(fd, name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return seen{}, err
	}
	s := seen{dev: unix.Mkdev(st.Dev_major, st.Dev_minor), ino: st.Ino, mode: uint32(st.Mode), uid: st.Uid, size: st.Size, changed: nanos(st.Ctime)}
	if st.Mask&unix.STATX_BTIME != 0 {
		s.born = nanos(st.Btime)
	}
	return s, nil
}

// lookBeneath looks at a path below a directory; a link is looked at itself.
func lookBeneath(root int, name string) (seen, error) {
	fd, err := openBeneath(root, name, unix.O_PATH, 0)
	if err != nil {
		return seen{}, err
	}
	defer unix.Close(fd)
	return look(fd, "")
}

func (s seen) is(kind uint32) bool { return s.mode&unix.S_IFMT == kind }

// An item is one mount over the project or a git directory, or a path that can't
// be mounted over.
type item struct {
	root     *root
	path     string // below the root
	target   string // inside; "" where it is not mounted
	readOnly bool
	file     bool // its placeholder is one
	before   seen
	there    bool // for a path that is not mounted
}

// A root is a directory with protected paths in it.
type root struct {
	dir    string
	target string
	git    bool // a worktree's git directory
	fd     int
	id     seen
}

// A Hold is the protected paths of one session.
type Hold struct {
	roots []*root
	items []*item
	home  string // the user's
	since time.Time
	began bool
}

// Open opens what the policy protects. project is the identity of the project's
// directory when the policy was decided, and home the user's. The caller closes it.
func Open(p policy.Policy, project spec.Bind, home string) (*Hold, error) {
	h := &Hold{home: home, since: time.Now()}
	for _, m := range p.Mounts {
		var err error
		switch m.Why {
		case policy.WhyProject, policy.WhyGitDir:
			if !m.ReadOnly { // else nothing can change
				err = h.addRoot(m, project)
			}
		case policy.WhyProtected, policy.WhyHeld:
			err = h.add(m)
		}
		if err != nil {
			h.Close()
			return nil, err
		}
	}
	for _, name := range p.Unheld {
		for _, r := range h.roots {
			if below, ok := strings.CutPrefix(name, r.dir+"/"); ok {
				it := &item{root: r, path: below}
				var err error
				it.before, err = lookBeneath(r.fd, below)
				it.there = err == nil
				h.items = append(h.items, it)
			}
		}
	}
	return h, nil
}

func (h *Hold) addRoot(m policy.Mount, project spec.Bind) error {
	fd, err := openRoot(m.Source)
	if err != nil {
		return err
	}
	r := &root{dir: m.Source, target: m.Target, git: m.Why == policy.WhyGitDir, fd: fd}
	h.roots = append(h.roots, r)
	if r.id, err = look(fd, ""); err != nil {
		return fmt.Errorf("look at %s: %w", policy.Quote(m.Source), err)
	}
	if !r.git && project.Ino != 0 && (r.id.dev != project.Dev || r.id.ino != project.Ino) {
		return fmt.Errorf("%s was another directory when the policy was decided; start again", policy.Quote(m.Source))
	}
	return nil
}

func (h *Hold) add(m policy.Mount) error {
	for _, r := range h.roots {
		if below, ok := strings.CutPrefix(m.Source, r.dir+"/"); ok && m.Target == path.Join(r.target, below) {
			h.items = append(h.items, &item{root: r, path: below, target: m.Target, readOnly: m.ReadOnly,
				file: m.Placeholder == policy.PlaceholderFile || m.Placeholder == "" && policy.PlaceholderFor(below) == policy.PlaceholderFile})
			return nil
		}
	}
	return fmt.Errorf("%s is protected and lies in nothing that is mounted", policy.Quote(m.Source))
}

// Close lets go of the directories.
func (h *Hold) Close() {
	for _, r := range h.roots {
		unix.Close(r.fd)
	}
}

// Empty tells whether nothing is held.
func (h *Hold) Empty() bool { return len(h.items) == 0 }

// Claims lists the placeholders that the session needs: those to be made, without
// an identity, and those of other sessions, which have one. others are all that
// are recorded. Nobody may make or remove one until the list is recorded and Make
// is done: see Manager.hold.
func (h *Hold) Claims(others []store.Placeholder) ([]store.Placeholder, error) {
	var out []store.Placeholder
	for _, it := range h.items {
		if it.target == "" || !it.readOnly {
			continue
		}
		p := store.Placeholder{Root: it.root.dir, Path: it.path, Asked: h.since.UnixNano(), File: it.file}
		s, err := lookBeneath(it.root.fd, it.path)
		switch {
		case errors.Is(err, unix.ENOENT):
			out = append(out, p)
		case err != nil:
			return nil, fmt.Errorf("look at %s: %w", policy.Quote(it.path), err)
		default:
			for _, o := range others {
				if o.Root == p.Root && o.Path == p.Path && isPlaceholder(s, o) {
					p.File, p.Dev, p.Ino, p.Born = o.File, s.dev, s.ino, s.born
					out = append(out, p)
					break
				}
			}
		}
	}
	return out, nil
}

// Make makes the placeholders that have no identity, and gives them theirs. One
// that somebody else has just made is dropped from the list.
func (h *Hold) Make(list []store.Placeholder) ([]store.Placeholder, error) {
	var out []store.Placeholder
	for _, p := range list {
		if p.Ino == 0 {
			s, err := h.make(p)
			if errors.Is(err, unix.EEXIST) {
				continue
			}
			if err != nil {
				what := "use --fs ro where nothing can be written, or --unprotect"
				if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
					what = "make room on the project's file system"
				}
				return append(out, p), fmt.Errorf("make a placeholder for %s, which is protected: %w; %s", policy.Quote(p.Path), err, what)
			}
			p.Dev, p.Ino, p.Born = s.dev, s.ino, s.born
		}
		out = append(out, p)
	}
	return out, nil
}

func (h *Hold) make(p store.Placeholder) (seen, error) {
	for _, r := range h.roots {
		if r.dir != p.Root {
			continue
		}
		dir, err := openBeneath(r.fd, path.Dir(p.Path), unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return seen{}, err
		}
		defer unix.Close(dir)
		name := path.Base(p.Path)
		if p.File {
			if err := makeFile(dir, name, policy.PlaceholderContent(p.Path)); err != nil {
				return seen{}, err
			}
		} else if err := unix.Mkdirat(dir, name, 0o755); err != nil {
			return seen{}, err
		}
		return look(dir, name)
	}
	return seen{}, unix.ENOENT
}

// makeFile makes a file where nothing is. It appears with its content: git on the
// host may be reading. Not every file system has such files (open(2), O_TMPFILE).
func makeFile(dir int, name, content string) error {
	const flags = unix.O_WRONLY | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, ".", flags|unix.O_TMPFILE, 0o644)
	whole := err == nil
	if !whole {
		fd, err = unix.Openat(dir, name, flags|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o644)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if content != "" {
		if _, err := unix.Write(fd, []byte(content)); err != nil {
			return err
		}
	}
	if !whole {
		return nil
	}
	return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), dir, name, unix.AT_SYMLINK_FOLLOW)
}

// Binds are the identities of what is mounted, for the entrypoint to compare. From
// now on it is known what everything was.
func (h *Hold) Binds() ([]spec.Bind, error) {
	var out []spec.Bind
	for _, r := range h.roots {
		if r.git {
			out = append(out, spec.Bind{Target: r.target, Dev: r.id.dev, Ino: r.id.ino})
		}
	}
	for _, it := range h.items {
		if it.target == "" {
			continue
		}
		s, err := lookBeneath(it.root.fd, it.path)
		if err == nil && !s.is(unix.S_IFDIR) && !s.is(unix.S_IFREG) {
			err = errors.New("it is neither a file nor a directory any more")
		}
		if err != nil {
			return nil, fmt.Errorf("look at %s, which is protected: %w; start again", policy.Quote(it.path), err)
		}
		it.before = s
		out = append(out, spec.Bind{Target: it.target, Dev: s.dev, Ino: s.ino})
	}
	return out, nil
}

// Begin is called just before the command starts: what has changed from now on,
// it may have done. (Before, podman may have given labels.)
func (h *Hold) Begin() error {
	h.since, h.began = time.Now(), true
	for _, it := range h.items {
		if it.target == "" {
			continue
		}
		s, err := lookBeneath(it.root.fd, it.path)
		if err == nil && (s.dev != it.before.dev || s.ino != it.before.ino) {
			err = errors.New("it was replaced while the sandbox started")
		}
		if err != nil {
			return fmt.Errorf("look at %s, which is protected: %w; start again", policy.Quote(it.path), err)
		}
		it.before = s
	}
	return nil
}

// slack is how much later than a file's the time of this process may be: files
// have that of the last tick (clock_getres(2), CLOCK_REALTIME_COARSE).
const slack = 20 * time.Millisecond

// isPlaceholder tells whether what was seen can be a recorded placeholder: empty as
// far as that shows, ours, and the same one, or not older than the record where
// that was written before it was made.
func isPlaceholder(s seen, p store.Placeholder) bool {
	kind := uint32(unix.S_IFDIR)
	if p.File {
		kind = unix.S_IFREG
	}
	if !s.is(kind) || p.File && s.size != uint64(len(policy.PlaceholderContent(p.Path))) || int(s.uid) != os.Geteuid() {
		return false
	}
	if p.Ino != 0 {
		return s.ino == p.Ino && s.born == p.Born && (s.dev == p.Dev || p.Born != 0) // a device's number may be another one after a reboot
	}
	made := s.born
	if made == 0 {
		made = s.changed
	}
	return made >= p.Asked-int64(slack)
}

// Remove removes a placeholder if it's still empty and the one that was made.
// Anything else stays, and is no error.
func Remove(p store.Placeholder) error {
	fd, err := unix.Open(p.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil // with all that was in it
	}
	if err == nil {
		defer unix.Close(fd)
		err = remove(fd, p)
	}
	if err != nil {
		return fmt.Errorf("remove the placeholder %s in %s: %w", policy.Quote(p.Path), policy.Quote(p.Root), err)
	}
	return nil
}

func remove(root int, p store.Placeholder) error {
	dir, err := openBeneath(root, path.Dir(p.Path), unix.O_PATH|unix.O_DIRECTORY, 0)
	gone := func(err error) bool {
		return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
	}
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	name := path.Base(p.Path)
	s, err := look(dir, name)
	if gone(err) || err == nil && !isPlaceholder(s, p) {
		return nil
	}
	if err != nil {
		return err
	}
	if !p.File {
		err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		if errors.Is(err, unix.ENOTEMPTY) || gone(err) {
			return nil // somebody has put something in it
		}
		return err
	}
	// A file can be written between a look and its removal: it is moved aside, where
	// nobody looks for it, and back if it was.
	aside := ".aisb-" + rand.Text()
	if err := unix.Renameat2(dir, name, dir, aside, unix.RENAME_NOREPLACE); err != nil {
		if gone(err) {
			return nil
		}
		return err
	}
	if s, err := look(dir, aside); err != nil || !isPlaceholder(s, p) {
		return errors.Join(err, unix.Renameat2(dir, aside, dir, name, unix.RENAME_NOREPLACE))
	}
	return unix.Unlinkat(dir, aside, 0)
}

// Differences tells what became of the protected paths. Inside they could not be
// changed; a change on the host can also have undone a mount (mount_namespaces(7):
// a mount point that is removed or replaced elsewhere is detached).
func (h *Hold) Differences() []Change {
	var out []Change
	for _, it := range h.items {
		now, err := lookBeneath(it.root.fd, it.path)
		what := ""
		switch {
		case it.target == "":
			if (err == nil) != it.there || err == nil && (now.ino != it.before.ino || now.dev != it.before.dev || now.changed != it.before.changed) {
				what = WhatUnheld
			}
		case err != nil || now.dev != it.before.dev || now.ino != it.before.ino || now.mode&unix.S_IFMT != it.before.mode&unix.S_IFMT:
			what = WhatReplaced
		case it.readOnly && now.changed != it.before.changed:
			what = WhatProtected
		}
		if what != "" {
			out = append(out, Change{Path: it.root.shown(it.path), What: what})
		}
	}
	return out
}

// shown is how a path below a root is called: the project's by itself, others
// whole.
func (r *root) shown(p string) string {
	if r.git {
		return path.Join(r.dir, p)
	}
	return p
}
