// The pasta process of a container's network: finding it, and seeing it gone.

package podman

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pastaEnds is how long a removal waits for the listeners of a container's
// published ports: pasta quits as soon as it is told that its namespace is gone,
// which nobody waits for.
const pastaEnds = 20 * time.Second

// watchPasta keeps hold of the pasta of a container, which is known by the name
// that it is removed by, for pastaGone.
func (c *Client) watchPasta(container string, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it is gone, and listens no more
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pastas == nil {
		c.pastas = map[string]int{}
	}
	c.pastas[container] = fd
}

// pastaGone waits until nobody listens any more at the published ports of a
// container that was removed.
func (c *Client) pastaGone(container string) error {
	c.mu.Lock()
	fd, ok := c.pastas[container]
	delete(c.pastas, container)
	c.mu.Unlock()
	if !ok {
		return nil
	}
	defer unix.Close(fd)
	for deadline := time.Now().Add(pastaEnds); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(time.Until(deadline), 0).Milliseconds()))
		switch {
		case n > 0:
			return nil
		case err != nil && err != unix.EINTR:
			return fmt.Errorf("wait for pasta's end: %w", err)
		case err == nil:
			return fmt.Errorf("pasta still serves its published ports after %v; end the pasta process", pastaEnds)
		}
	}
}

// pastaOf finds the user's pasta process of a network namespace and returns its id
// and its arguments without the program's name. pasta quits with its namespace, so
// one that is there is the one.
func pastaOf(proc, netns string, uid int) (int, []string, error) {
	dirs, err := os.ReadDir(proc)
	if err != nil {
		return 0, nil, fmt.Errorf("look for pasta: %w", err)
	}
	for _, d := range dirs {
		if n := d.Name(); n[0] < '0' || n[0] > '9' {
			continue
		}
		b, err := os.ReadFile(filepath.Join(proc, d.Name(), "cmdline"))
		if err != nil {
			continue // gone meanwhile
		}
		argv := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
		if !strings.HasPrefix(filepath.Base(argv[0]), "pasta") && !strings.HasPrefix(filepath.Base(argv[0]), "passt") {
			continue
		}
		// Anybody can call a process so.
		if !runsAs(filepath.Join(proc, d.Name(), "status"), uid) {
			continue
		}
		if i := slices.Index(argv, "--netns"); i >= 0 && i+1 < len(argv) && argv[i+1] == netns {
			pid, err := strconv.Atoi(d.Name())
			return pid, argv[1:], err
		}
	}
	return 0, nil, fmt.Errorf("no pasta process serves the container's network namespace %s", netns)
}

// runsAs tells whether a process has the uid, by its status (proc_pid_status(5)).
func runsAs(status string, uid int) bool {
	text, err := os.ReadFile(status)
	if err != nil {
		return false // gone meanwhile
	}
	for line := range strings.Lines(string(text)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			f := strings.Fields(ids)
			return len(f) == 4 && f[0] == strconv.Itoa(uid) && f[1] == f[0]
		}
	}
	return false
}
