// Helper programs: where they may be found, and what they can do.

package host

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// systemDirs are looked through after the caller's own PATH.
var systemDirs = []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"}

// searchPath returns the directories of path that a helper program may come
// from, then the system's.
func searchPath(path, project string, uid int) []string {
	var out []string
	for _, dir := range slices.Concat(filepath.SplitList(path), systemDirs) {
		if !filepath.IsAbs(dir) {
			continue // "." and the like follow the caller around
		}
		dir = Resolve(dir)
		if slices.Contains(out, dir) || within(dir, project) || !trusted(dir, uid, true) {
			continue
		}
		out = append(out, dir)
	}
	return out
}

// trusted tells whether only root and the user can change a file or directory.
func trusted(path string, uid int, dir bool) bool {
	info, err := os.Stat(path)
	if err != nil || info.IsDir() != dir {
		return false
	}
	who := owner(info)
	return (who == 0 || who == uid) && info.Mode().Perm()&0o002 == 0
}

// lookup finds a program in dirs. What it resolves to must be trusted too.
func lookup(name string, dirs []string, project string, uid int) string {
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		real := Resolve(path)
		if within(real, project) || !trusted(real, uid, false) || !trusted(filepath.Dir(real), uid, true) {
			continue
		}
		if info, err := os.Stat(real); err != nil || info.Mode().Perm()&0o111 == 0 {
			continue
		}
		return path // not what it resolves to: a program may go by its name
	}
	return ""
}

// A verdict is what a program said about itself, kept so that a warm start does
// not ask again. It holds for one file.
type verdict struct {
	Size, MTime     int64
	Ino             uint64
	Version         string `json:",omitempty"`
	MapHostLoopback bool   `json:",omitempty"`
}

const verdictFile = "tools.json"

// probeTools finds podman and pasta and fills in what they can do, from the
// verdicts kept in the state directory where those still hold.
func probeTools(f *Facts) {
	kept := map[string]verdict{}
	file := filepath.Join(f.Dirs.State, verdictFile)
	if data, err := os.ReadFile(file); err == nil {
		if json.Unmarshal(data, &kept) != nil {
			kept = map[string]verdict{} // asked anew below
		}
	}
	changed := false
	ask := func(name string, question func(path string) (verdict, error)) Tool {
		t := Tool{Path: lookup(name, f.SearchPath, f.Project.Path, f.UID)}
		if t.Path == "" {
			return t
		}
		info, err := os.Stat(t.Path)
		if err != nil {
			t.Err = err.Error()
			return t
		}
		id := verdict{Size: info.Size(), MTime: info.ModTime().UnixNano()}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			id.Ino = st.Ino
		}
		v, ok := kept[t.Path]
		if !ok || v.Size != id.Size || v.MTime != id.MTime || v.Ino != id.Ino {
			if v, err = question(t.Path); err != nil {
				t.Err = err.Error()
				return t
			}
			v.Size, v.MTime, v.Ino = id.Size, id.MTime, id.Ino
			kept[t.Path], changed = v, true
		}
		t.Version, t.MapHostLoopback = v.Version, v.MapHostLoopback
		return t
	}
	f.Podman = ask("podman", askPodman)
	f.Pasta = ask("pasta", askPasta)
	// Nothing may be written where the project could be the state directory.
	if changed && len(f.Steered) == 0 && !overlap(f.Project.Path, f.Dirs.State) {
		_ = keep(file, kept) // a cache: the next start asks again
	}
}

func askPodman(path string) (verdict, error) {
	out, err := run(path, "--version")
	if err != nil {
		return verdict{}, err
	}
	v := podmanVersion(out)
	if v == "" {
		return verdict{}, fmt.Errorf("%s --version says no version", path)
	}
	return verdict{Version: v}, nil
}

var versionRE = regexp.MustCompile(`^podman version ([0-9]+\.[0-9]+[^\s]*)`)

func podmanVersion(out string) string {
	if m := versionRE.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}

func askPasta(path string) (verdict, error) {
	// Every pasta prints its usage for --help; some exit 1 afterwards.
	out, err := run(path, "--help")
	if out == "" && err != nil {
		return verdict{}, err
	}
	return verdict{MapHostLoopback: strings.Contains(out, "--map-host-loopback")}, nil
}

// run runs a helper with an environment of its own, away from the project.
func run(path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + strings.Join(systemDirs, ":"), "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("run %s %s: %w", path, strings.Join(args, " "), err)
	}
	return string(out), err
}

func keep(file string, kept map[string]verdict) error {
	data, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), verdictFile+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // the first error is the one to tell
	}
	return err
}
