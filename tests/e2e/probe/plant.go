// Every way that we know to change a protected path from inside.

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// planted is what a path holds when one of them worked.
const planted = "PLANTED\n"

// plant tries to get a file of ours to each of the paths, which are relative to the
// working directory, and tells what the kernel let through on the way. Whether
// something came of it the host sees.
func plant(paths []string) {
	wd, err := os.Getwd()
	if err != nil {
		fmt.Println("getwd", err)
		return
	}
	for _, p := range paths {
		for _, step := range ancestors(p) {
			for _, at := range []string{step, "/proc/self/cwd/" + step, "/proc/self/root" + wd + "/" + step, wd + "/../" + filepath.Base(wd) + "/" + step} {
				away(at, wd)
			}
		}
		inPlace(p)
		put(p)
	}
	// The project itself can't be another one, either.
	told("rename the project", unix.Rename(wd, wd+".old"))
	told("exchange the project", unix.Renameat2(unix.AT_FDCWD, wd, unix.AT_FDCWD, "/tmp", unix.RENAME_EXCHANGE))
}

// told prints what worked; what was refused or has no object is expected.
func told(what string, err error) {
	if err == nil {
		fmt.Println("worked:", what)
	}
}

func ancestors(p string) []string {
	var out []string
	for ; p != "."; p = filepath.Dir(p) {
		out = append(out, p)
	}
	return out
}

// litter is a new directory of ours in the project, that holds what the path's
// place would.
func litter() string {
	dir, err := os.MkdirTemp(".", "litter")
	if err != nil {
		fmt.Println("litter:", err)
	}
	return dir
}

// away tries to get what is at a path out of the way, and something of ours there.
func away(at, wd string) {
	evil := litter()
	_ = os.WriteFile(filepath.Join(evil, "file"), []byte(planted), 0o700) // it may be a file that is wanted
	told("exchange "+at, unix.Renameat2(unix.AT_FDCWD, evil, unix.AT_FDCWD, at, unix.RENAME_EXCHANGE))
	told("exchange a file with "+at, unix.Renameat2(unix.AT_FDCWD, filepath.Join(evil, "file"), unix.AT_FDCWD, at, unix.RENAME_EXCHANGE))
	told("rename "+at, unix.Rename(at, filepath.Join(litter(), "old")))
	told("rename over "+at, unix.Rename(evil, at))
	told("rename a file over "+at, unix.Rename(filepath.Join(evil, "file"), at))
	told("unlink "+at, unix.Unlink(at))
	told("rmdir "+at, unix.Rmdir(at))
	told("link over "+at, unix.Symlink(wd+"/"+evil, at))
	told("umount "+at, unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	told("mount over "+at, unix.Mount(evil, at, "", unix.MS_BIND, ""))
	told("remount "+at, unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	told("mount_setattr "+at, unix.MountSetattr(unix.AT_FDCWD, at, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}))
	if fd, err := unix.OpenTree(unix.AT_FDCWD, evil, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC); err == nil {
		told("move_mount "+at, unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH))
		unix.Close(fd)
	}
	if fd, err := unix.Open(filepath.Dir(at), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		told("renameat "+at, unix.Renameat(fd, filepath.Base(at), fd, "old-"+filepath.Base(at)))
		told("unlinkat "+at, unix.Unlinkat(fd, filepath.Base(at), 0))
		told("unlinkat "+at, unix.Unlinkat(fd, filepath.Base(at), unix.AT_REMOVEDIR))
		unix.Close(fd)
	}
}

// inPlace tries to change what is there, by every name that it can have.
func inPlace(p string) {
	told("truncate "+p, unix.Truncate(p, 0))
	told("chmod "+p, unix.Chmod(p, 0o777))
	told("utimes "+p, unix.Utimes(p, []unix.Timeval{{Sec: 1}, {Sec: 1}}))
	told("xattr "+p, unix.Setxattr(p, "user.aisb", []byte("x"), 0))
	told("remove all of "+p, removeAll(p))
	other := filepath.Join(litter(), "hard")
	told("hard link of "+p, unix.Link(p, other))
	if fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
		self := "/proc/self/fd/" + strconv.Itoa(fd)
		told("hard link through a descriptor of "+p, unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, other, unix.AT_SYMLINK_FOLLOW))
		for _, flags := range []int{unix.O_WRONLY, unix.O_RDWR | unix.O_TRUNC, unix.O_WRONLY | unix.O_APPEND, unix.O_RDWR | unix.O_TMPFILE} {
			if w, err := unix.Open(self, flags|unix.O_CLOEXEC, 0o600); err == nil {
				told("open again "+p, nil)
				_, _ = unix.Write(w, []byte(planted)) // the host sees
				unix.Close(w)
			}
		}
		unix.Close(fd)
	}
}

func removeAll(p string) error {
	if _, err := os.Lstat(p); err != nil {
		return err
	}
	return os.RemoveAll(p)
}

// put makes the path with what it lies in: last, and what the positive control
// does too.
func put(p string) {
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		fmt.Println("put:", err)
	}
	_ = os.WriteFile(p, []byte(planted), 0o755) // the host sees
	_ = os.Mkdir(p, 0o755)
	_ = os.WriteFile(filepath.Join(p, "planted"), []byte(planted), 0o755)
	_ = unix.Mkfifo(filepath.Join(p, "fifo"), 0o600)
}
