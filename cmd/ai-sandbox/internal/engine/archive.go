// Images in a file.

package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend/podman"
	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/cmd/ai-sandbox/internal/protect"
	"ai-sandbox/image"
	"ai-sandbox/image/archive"
	"ai-sandbox/image/registry"
	"ai-sandbox/policy"
)

// withImages is what both verbs begin with: what ends them, podman, and the request.
func withImages(ctx context.Context, r cli.BuildRequest,
	do func(context.Context, *podman.Client, imagebuild.Request, imagebuild.Options) (imagebuild.Plan, error)) error {
	if r.Runtime == policy.RuntimeLocal {
		return errNoImages
	}
	return interruptible(ctx, func(ctx context.Context) error {
		_, c, err := open(ctx, r.Machine)
		if err != nil {
			return err
		}
		req, err := request(r.Image)
		if err != nil {
			return err
		}
		show := newProgress(r.Machine, r.Verbose)
		defer show.close()
		p, err := do(ctx, c, req, show.options(r.Environ))
		if err != nil {
			return err
		}
		for _, i := range []imagebuild.Image{p.Sandbox, p.Gate} {
			fmt.Fprintf(r.Out, "%s %s\n", i.Ref, i.ID)
		}
		fmt.Fprintf(r.Out, "%s %s\n", p.BaseRef, p.BaseDigest)
		return nil
	})
}

// imageSave writes the images that runs stand on into a file that is not there yet.
// Like any build, it first brings them up to date.
func (e *engine) imageSave(ctx context.Context, r cli.BuildRequest, path string) error {
	return withImages(ctx, r, func(ctx context.Context, c *podman.Client, req imagebuild.Request, o imagebuild.Options) (imagebuild.Plan, error) {
		// First, as what comes then takes its time.
		f, err := newFile(path, r.Facts.Project.Path)
		if err != nil {
			return imagebuild.Plan{}, err
		}
		p, err := req.Ensure(ctx, c, o)
		if err == nil {
			err = req.Save(ctx, c, o, &p, f, func(ctx context.Context, ref image.Reference, w *archive.Writer) (archive.Descriptor, error) {
				return registry.Copy(ctx, ref, registryOptions(r.Environ), w)
			})
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		return p, f.end(err)
	})
}

// imageLoad takes the images of a file.
func (e *engine) imageLoad(ctx context.Context, r cli.BuildRequest, path string) error {
	// Not to wait for a writer, where it is a FIFO.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("load images: %s is not a regular file", policy.Quote(path))
	}
	return withImages(ctx, r, func(ctx context.Context, c *podman.Client, req imagebuild.Request, o imagebuild.Options) (imagebuild.Plan, error) {
		return req.Load(ctx, c, o, f, info.Size(), registry.Decompress)
	})
}

// A file gets its name when it is whole. It may lie in the project, which an agent can
// write: no link is followed there, and nothing that has the name is replaced.
type file struct {
	io.Writer
	f         *os.File
	dir       int
	name, all string
	tmp       string // "" where it has no name before
}

func newFile(path, project string) (*file, error) { return openFile(path, project, unix.O_TMPFILE) }

// openFile begins with a file that has no name (open(2), O_TMPFILE), so that nothing is
// left where we are killed; where the file system has no such files, or flag is 0, it has
// another name until it is whole.
func openFile(path, project string, flag int) (*file, error) {
	fail := func(err error) error { return fmt.Errorf("write %s: %w", policy.Quote(path), err) }
	dir, err := protect.OpenDir(filepath.Dir(path), project)
	if err != nil {
		return nil, fail(err)
	}
	f := &file{dir: dir, name: filepath.Base(path), all: path}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, f.name, &st, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, unix.ENOENT) {
		if err == nil {
			err = errors.New("it is there already: remove it, or name another")
		}
		return nil, errors.Join(fail(err), unix.Close(dir))
	}
	fd, err := -1, unix.EOPNOTSUPP
	if flag != 0 {
		fd, err = openat(dir, ".", flag|unix.O_WRONLY|unix.O_CLOEXEC)
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		f.tmp = ".aisb-image-" + rand.Text()
		fd, err = openat(dir, f.tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	}
	if err != nil {
		return nil, errors.Join(fail(err), unix.Close(dir))
	}
	f.f = os.NewFile(uintptr(fd), f.name)
	f.Writer = f.f
	return f, nil
}

func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, 0o600)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// end gives the file its name, or, where something was wrong with it, takes it away.
func (f *file) end(err error) error {
	if err == nil {
		err = f.f.Sync()
	}
	if err == nil {
		if f.tmp == "" {
			err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.f.Fd()), f.dir, f.name, unix.AT_SYMLINK_FOLLOW)
		} else {
			err = unix.Renameat2(f.dir, f.tmp, f.dir, f.name, unix.RENAME_NOREPLACE)
		}
		if err != nil {
			err = fmt.Errorf("write %s: %w", policy.Quote(f.all), err)
		}
	}
	err = errors.Join(err, f.f.Close())
	if err != nil && f.tmp != "" {
		err = errors.Join(err, unix.Unlinkat(f.dir, f.tmp, 0))
	}
	return errors.Join(err, unix.Close(f.dir))
}
