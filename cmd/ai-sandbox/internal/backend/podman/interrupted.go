// The end of a build that nobody waits for any more, and what it has made.
//
// When whoever asked for a build goes away, podman's service ends it before the next
// step; but the command of a step goes on, as long as that writes nothing. It is
// found by a name in its /etc/hosts, which every step of a build has with its mark.

package podman

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/images"
	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/image"
)

const (
	// letGo is the time between two looks at a build that is about to end, and lingers
	// how many find its containers when its last command has ended, until they are taken
	// for those of another build: five seconds, and more where podman is busy and lets
	// neither us look nor that build go.
	letGo   = 50 * time.Millisecond
	lingers = 100
)

// markHost is the name that the steps of a build have in their /etc/hosts.
func markHost(mark string) string { return "aisb-build-" + mark }

// EndBuild implements imagebuild.Builder.
func (c *Client) EndBuild(ctx context.Context, b imagebuild.Build, since time.Time) error {
	for looks := 0; ; looks++ {
		killed, err := killSteps("/proc", markHost(b.Mark))
		if err != nil {
			return err
		}
		if killed > 0 {
			looks = 0
		}
		n, err := c.working(ctx, b, since)
		if err != nil || n == 0 || looks > lingers {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("podman is still in a step: %w", context.Cause(ctx))
		case <-time.After(letGo):
		}
	}
}

// working counts the containers that the build may work in. They are storage's and not
// podman's, and have no labels: all that is known is what they were made from, and when.
func (c *Client) working(ctx context.Context, b imagebuild.Build, since time.Time) (int, error) {
	marked, err := c.marked(ctx, b.Mark)
	if err != nil {
		return 0, err
	}
	conn, done := c.with(ctx)
	defer done()
	list, err := allContainers(conn)
	if err != nil {
		return 0, fmt.Errorf("list the containers of builds: %w", err)
	}
	n := 0
	for _, l := range list {
		// The clock of the record is in whole seconds.
		if l.State != external || l.Created.Before(since.Truncate(time.Second)) {
			continue
		}
		if b.From != "" && l.Image == b.From || slices.ContainsFunc(marked, func(i markedImage) bool { return i.id == l.ImageID }) {
			n++
		}
	}
	return n, nil
}

// external is the state of a container that is not podman's own.
const external = "storage"

// A markedImage was made by a build of ours.
type markedImage struct {
	id, mark string
	// loose: it has no name, and nothing is built on it.
	loose bool
	// used: a container is made of it.
	used bool
}

// marked are the images with the mark, or with any where that is "".
func (c *Client) marked(ctx context.Context, mark string) ([]markedImage, error) {
	conn, done := c.with(ctx)
	defer done()
	label := image.LabelBuild
	if mark != "" {
		label += "=" + mark
	}
	list, err := allImages(conn, new(images.ListOptions).WithAll(true).WithFilters(map[string][]string{"label": {label}}))
	if err != nil {
		return nil, fmt.Errorf("list the layers of builds: %w", err)
	}
	var out []markedImage
	for _, i := range list {
		out = append(out, markedImage{i.ID, i.Labels[image.LabelBuild], i.Dangling, i.Containers > 0})
	}
	return out, nil
}

// Unnamed implements imagebuild.Builder.
func (c *Client) Unnamed(ctx context.Context) ([]string, error) {
	list, err := c.marked(ctx, "")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, i := range list {
		if i.loose && !slices.Contains(out, i.mark) {
			out = append(out, i.mark)
		}
	}
	return out, nil
}

// RemoveUnnamed implements imagebuild.Builder.
func (c *Client) RemoveUnnamed(ctx context.Context, mark string) error {
	for {
		list, err := c.marked(ctx, mark)
		if err != nil {
			return err
		}
		removed := 0
		for _, i := range list {
			if !i.loose || i.used || i.mark != mark {
				continue
			}
			conn, done := c.with(ctx)
			_, errs := images.Remove(conn, []string{i.id}, new(images.RemoveOptions).WithIgnore(true).WithNoPrune(true))
			done()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			// Another build may have begun to use it.
			if len(errs) == 0 {
				removed++
			}
		}
		// What one of them was built on may be loose now.
		if removed == 0 {
			return nil
		}
	}
}

// killSteps kills every process that is the first one of its container, if the
// container's /etc/hosts has the name. Its end is that of all others in there.
func killSteps(proc, host string) (killed int, err error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return 0, fmt.Errorf("look for the steps of a build: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// First of all, so that it is still this process that is killed below.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		if isInit(filepath.Join(proc, e.Name())) && namesHost(filepath.Join(proc, e.Name(), "root"), host) {
			err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			killed++
		}
		if err = errors.Join(err, unix.Close(fd)); err != nil && !errors.Is(err, unix.ESRCH) {
			return killed, fmt.Errorf("end the step of a build, process %d: %w", pid, err)
		}
	}
	return killed, nil
}

// isInit tells whether a process is the first one of a process namespace below ours
// (proc_pid_status(5), NSpid).
func isInit(dir string) bool {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return false
	}
	_, rest, ok := bytes.Cut(status, []byte("\nNSpid:"))
	if !ok {
		return false
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	ids := bytes.Fields(line)
	return len(ids) > 1 && string(ids[len(ids)-1]) == "1"
}

// maxHosts is how much of a hosts file is read, in bytes.
const maxHosts = 64 << 10

// namesHost tells whether the hosts file below root has the name. It may be a
// sandbox's root: nothing there leads out of it, or is waited for.
func namesHost(root, host string) bool {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := unix.Openat2(dir, "etc/hosts", &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), "hosts")
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	text, err := io.ReadAll(io.LimitReader(f, maxHosts))
	return err == nil && slices.ContainsFunc(bytes.Fields(text), func(w []byte) bool { return string(w) == host })
}
