// Homes: a directory for each below homes in the state directory, and beside it
// a small file with its labels, which says that it is ours. What is in a home
// was written by agents: nothing of it is followed.

package local

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/tree"
	"ai-sandbox/policy"
)

// Homes is the directory of the homes.
func Homes(stateDir string) string { return filepath.Join(stateDir, "homes") }

// homeName is what policy.HomeVolume and a session's own home look like.
var homeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^aisb-home-[a-z0-9][a-z0-9-]{0,80}$`) })

func checkHomeName(name string) error {
	if !homeName().MatchString(name) {
		return fmt.Errorf("%s is not the name of a home", policy.Quote(name))
	}
	return nil
}

// labelsFile is the name of the file beside a home.
func labelsFile(name string) string { return name + ".json" }

// unnamed begins the name of that file while it is written.
func unnamed(name string) string { return name + ".new-" }

// EnsureHome implements backend.Backend.
func (b *Backend) EnsureHome(_ context.Context, name, session string, labels map[string]string) (string, error) {
	if err := checkHomeName(name); err != nil {
		return "", err
	}
	root, err := b.openHomes()
	if err != nil {
		return "", fmt.Errorf("make the home %s: %w", name, err)
	}
	defer root.Close()
	all := map[string]string{backend.LabelKind: "home"}
	for k, v := range labels {
		all[k] = v
	}
	if session != "" {
		all[backend.LabelSession] = session
	}
	// In this order: the file is made before the directory.
	_, lerr := root.Lstat(name)
	got, err := readLabels(root, name)
	if errors.Is(err, os.ErrNotExist) {
		if lerr == nil {
			return "", fmt.Errorf("%s is there but was not made by ai-sandbox: remove it or rename it", filepath.Join(root.Name(), name))
		}
		if err := writeLabels(root, name, all); err != nil {
			return "", fmt.Errorf("make the home %s: %w", name, err)
		}
		got, err = readLabels(root, name) // another start's, if that one was quicker
	}
	if err != nil {
		return "", fmt.Errorf("look at the home %s: %w", name, err)
	}
	// The name has only part of a hash of the project's path.
	if project := got[backend.LabelProject]; project != labels[backend.LabelProject] {
		return "", fmt.Errorf("the home %s belongs to the project %q: remove %s and %s beside it, or use --ephemeral-home",
			name, project, filepath.Join(root.Name(), name), labelsFile(name))
	}
	if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("make the home %s: %w", name, err)
	}
	if err := checkHome(root, name); err != nil {
		return "", err
	}
	return got[backend.LabelHomeLayout], nil
}

// Homes implements backend.Backend: those that have labels of ours.
func (b *Backend) Homes(context.Context) ([]backend.Home, error) {
	root, err := b.openHomes()
	if err != nil {
		return nil, fmt.Errorf("list the homes: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list the homes: %w", err)
	}
	var out []backend.Home
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), labelsFile(""))
		if !ok || checkHomeName(name) != nil {
			continue
		}
		if _, err := readLabels(root, name); err == nil {
			out = append(out, backend.Home{Name: name})
		}
	}
	return out, nil
}

// openHomes opens the directory of the homes, which is the user's alone.
func (b *Backend) openHomes() (*os.Root, error) {
	dir := Homes(b.config.StateDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return nil, fmt.Errorf("look at %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s is not a directory that you alone can use: make it yours with mode 0700, or remove it", dir)
	}
	return os.OpenRoot(dir)
}

// checkHome refuses a home that is not a directory of the user's, and shuts one
// whose mode an agent has changed.
func checkHome(root *os.Root, name string) error {
	dir, err := root.OpenFile(name, os.O_RDONLY|unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("the home %s is not a directory: remove %s: %w", name, filepath.Join(root.Name(), name), err)
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("look at the home %s: %w", name, err)
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("the home %s belongs to another user (uid %d): remove %s", name, st.Uid, filepath.Join(root.Name(), name))
	}
	if st.Mode&0o7777 != 0o700 {
		// By its descriptor: the name may be another's by now.
		if err := os.Chmod("/proc/self/fd/"+strconv.Itoa(int(dir.Fd())), 0o700); err != nil {
			return fmt.Errorf("shut the home %s: %w", name, err)
		}
	}
	return nil
}

func readLabels(root *os.Root, name string) (map[string]string, error) {
	text, err := root.ReadFile(labelsFile(name))
	if err != nil {
		return nil, err
	}
	var labels map[string]string
	if err := json.Unmarshal(text, &labels); err != nil || labels[backend.LabelKind] != "home" {
		return nil, fmt.Errorf("%s is not a home's: remove it", filepath.Join(root.Name(), labelsFile(name)))
	}
	return labels, nil
}

// writeLabels makes the file with all that is in it, or leaves the one of another
// start that was quicker.
func writeLabels(root *os.Root, name string, labels map[string]string) error {
	text, err := json.Marshal(labels)
	if err != nil {
		return err
	}
	tmp := unnamed(name) + rand.Text()
	if err := root.WriteFile(tmp, append(text, '\n'), 0o600); err != nil {
		return err
	}
	err = root.Link(tmp, labelsFile(name))
	if errors.Is(err, os.ErrExist) {
		err = nil
	}
	return errors.Join(err, root.Remove(tmp))
}

// RemoveVolume implements backend.Backend. Without the file beside it, a
// directory is not ours, and stays. What a start that was killed has left of that
// file goes in any case.
func (b *Backend) RemoveVolume(_ context.Context, name string) error {
	if err := checkHomeName(name); err != nil {
		return err
	}
	if _, err := os.Lstat(Homes(b.config.StateDir)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	root, err := b.openHomes()
	if err != nil {
		return fmt.Errorf("remove the home %s: %w", name, err)
	}
	defer root.Close()
	left, err := fs.Glob(root.FS(), unnamed(name)+"*")
	for _, tmp := range left {
		if err == nil {
			err = root.Remove(tmp)
		}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the home %s: %w", name, err)
	}
	_, err = readLabels(root, name)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := root.Lstat(name); err == nil {
			return fmt.Errorf("%s was not made by ai-sandbox: it was not removed", filepath.Join(root.Name(), name))
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the home %s: %w", name, err)
	}
	dir, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("remove the home %s: %w", name, err)
	}
	defer dir.Close()
	if err := tree.Remove(int(dir.Fd()), name); err != nil {
		return fmt.Errorf("remove the home %s: %w", name, err)
	}
	if err := root.Remove(labelsFile(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the home %s: %w", name, err)
	}
	return nil
}
