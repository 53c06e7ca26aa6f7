// Helper programs: where they may be found, and what they can do.

package host

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"ai-sandbox/policy"
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
// not ask again. It holds for one file, and Machine for what it was found on.
type verdict struct {
	Size, MTime     int64
	Ino             uint64
	Machine         string `json:",omitempty"`
	Version         string `json:",omitempty"`
	MapHostLoopback bool   `json:",omitempty"`
	OpenSSL         bool   `json:",omitempty"`
}

const verdictFile = "tools.json"

// SquidPath is where the gate's squid is started from, whatever the PATH.
const SquidPath = "/usr/sbin/squid"

// ProbeTools returns the facts with a runtime's programs looked for, and asked
// what they can do, unless the state directory has a verdict that still holds.
// The runtime "" stands for all.
func ProbeTools(f Facts, runtime string) Facts { return probeTools(f, runtime, openVerdicts(f)) }

func probeTools(f Facts, runtime string, k *verdicts) Facts {
	f.Tools = maps.Clone(f.Tools)
	if f.Tools == nil {
		f.Tools = map[string]bool{}
	}
	if runtime == "" || runtime == policy.RuntimePodman {
		f.Tools[policy.RuntimePodman] = true
		f.SubUIDs = subIDs("/etc/subuid", f.User, f.UID)
		f.SubGIDs = subIDs("/etc/subgid", f.User, f.UID)
		f.Podman = k.ask(find("podman", f), "", askPodman)
		f.Pasta = k.ask(find("pasta", f), "", askPasta)
	}
	if runtime == "" || runtime == policy.RuntimeLocal {
		f.Tools[policy.RuntimeLocal] = true
		f.Kernel = kernel("/proc/sys")
		f.Bwrap = k.bubblewrap(f)
		squid := lookup(filepath.Base(SquidPath), []string{filepath.Dir(SquidPath)}, f.Project.Path, f.UID)
		if k.kept[squid].Version == "" {
			delete(k.kept, squid) // of an ai-sandbox that did not ask for it
		}
		f.Squid = k.ask(squid, "", askSquid)
	}
	// Nothing may be written where the project could be the state directory.
	if k.changed && len(f.Steered) == 0 && (f.Workspace != "" || !overlap(f.Project.Path, f.Dirs.State)) {
		_ = keep(k.file, k.kept) // a cache: the next start asks again
	}
	return f
}

func find(name string, f Facts) string { return lookup(name, f.SearchPath, f.Project.Path, f.UID) }

// verdicts are those that were kept, by path.
type verdicts struct {
	file    string
	kept    map[string]verdict
	changed bool
}

// askVerdicts has nothing that was kept.
func askVerdicts(f Facts) *verdicts {
	return &verdicts{file: filepath.Join(f.Dirs.State, verdictFile), kept: map[string]verdict{}}
}

func openVerdicts(f Facts) *verdicts {
	k := askVerdicts(f)
	if data, err := os.ReadFile(k.file); err == nil {
		if json.Unmarshal(data, &k.kept) != nil || k.kept == nil {
			k.kept = map[string]verdict{} // asked anew below
		}
	}
	return k
}

// ask returns what is kept of a program, if that holds for this file and machine,
// or asks it. An error is never kept.
func (k *verdicts) ask(path, machine string, question func(path string) (verdict, error)) Tool {
	t := Tool{Path: path}
	if path == "" {
		return t
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Err = err.Error()
		return t
	}
	id := verdict{Size: info.Size(), MTime: info.ModTime().UnixNano(), Machine: machine}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		id.Ino = st.Ino
	}
	t.Setuid = info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0
	v, ok := k.kept[path]
	if !ok || v.Size != id.Size || v.MTime != id.MTime || v.Ino != id.Ino || v.Machine != id.Machine {
		if v, err = question(path); err != nil {
			t.Err = err.Error()
			return t
		}
		v.Size, v.MTime, v.Ino, v.Machine = id.Size, id.MTime, id.Ino, id.Machine
		k.kept[path], k.changed = v, true
	}
	t.Version, t.MapHostLoopback, t.OpenSSL = v.Version, v.MapHostLoopback, v.OpenSSL
	return t
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

var versionRE = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^podman version ([0-9]+\.[0-9]+[^\s]*)`) })

func podmanVersion(out string) string {
	if m := versionRE().FindStringSubmatch(out); m != nil {
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

func askSquid(path string) (verdict, error) {
	out, err := run(path, "-v")
	if err != nil {
		return verdict{}, err
	}
	m := squidForm().FindStringSubmatch(out)
	if m == nil {
		return verdict{}, fmt.Errorf("%s -v says no version", path)
	}
	return verdict{Version: m[1], OpenSSL: strings.Contains(out, "--with-openssl")}, nil
}

var squidForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^Squid Cache: Version ([0-9]+\.[0-9]+\S*)`) })

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
