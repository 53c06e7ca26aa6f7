// Package host learns the facts about this machine that a run depends on, each
// probed for real, and judges them. Probing has effects and returns values;
// judging (Check) is pure, and is the preflight of a run and the doctor's list
// alike.
package host

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Facts are what is known about the machine, the user and the project.
type Facts struct {
	OS       string
	UID, GID int
	User     string
	// Home is the user's home, resolved; PasswdHome is the one in the user
	// database where that is another one.
	Home, PasswdHome string

	// Project is the directory to mount: resolved once, used resolved. Its
	// path is "" where there is none (see Input.AnyDir).
	Project Dir
	// Workspace is the project's path where ai-sandbox made it for this run
	// (see Input.Workspace), or "".
	Workspace string

	Dirs Dirs
	// Specials are sockets that no mount may show.
	Specials []Special

	// SubUIDs and SubGIDs count the subordinate ids of the user; -1 where
	// they are kept elsewhere than in a file.
	SubUIDs, SubGIDs int
	// SELinux is set where a bind mount needs a label.
	SELinux bool

	// RemoteEnv names the variable that points podman's clients at another
	// service, or "".
	RemoteEnv string
	// Steered are variables, and files and directories of ours, that lead into
	// the project or through it, or are relative.
	Steered []string
	// ContainersSteered is the same of what podman and we obey of the user's
	// configuration for it (see containersFiles).
	ContainersSteered []string

	// SearchPath are the directories where helper programs may be found:
	// absolute, not in the project, not writable by others.
	SearchPath []string
	// Tools has the runtimes whose programs were looked for (see ProbeTools):
	// podman's are Podman and Pasta, the local one's Bwrap and Squid.
	Tools         map[string]bool
	Podman, Pasta Tool
	Bwrap, Squid  Tool
	// Installer is the program that installs others here, or "" where the doctor has not
	// looked for it, or knows none.
	Installer string
	// Kernel is what the kernel says about user namespaces.
	Kernel Kernel
	// Cgroups say what can bound a run.
	Cgroups Cgroups
}

// A Kernel is its settings about user namespaces, as it shows them; "" is one
// that this kernel does not have.
type Kernel struct {
	MaxUserNS         string // user.max_user_namespaces
	UnprivilegedClone string // kernel.unprivileged_userns_clone (Debian's)
	AppArmorRestricts string // kernel.apparmor_restrict_unprivileged_userns (Ubuntu's)
}

// A Dir is a directory as it was seen when it was resolved.
type Dir struct {
	Path     string
	Owner    int
	Dev, Ino uint64
}

// Dirs are the directories of ai-sandbox and of podman, resolved as far as they
// exist.
type Dirs struct {
	Config, State, Cache string
	// XDGRuntime is the user's runtime directory, or "" when there is none;
	// RuntimeMode and RuntimeOwner are what it was found with.
	XDGRuntime   string
	RuntimeMode  fs.FileMode
	RuntimeOwner int
	// Store is where rootless podman keeps its images.
	Store string
	// Usual are those of ai-sandbox and the user where no variable names others: an
	// ai-sandbox that is started in another way has them.
	Usual []OwnDir
}

// An OwnDir is a directory that no sandbox may see.
type OwnDir struct{ Path, What string }

// own are all of them.
func (d Dirs) own() []OwnDir {
	return append([]OwnDir{
		{d.Config, "configuration"}, {d.State, ownState}, {d.Cache, "cache"}, {d.XDGRuntime, "runtime directory"}, {d.Store, "podman store"},
	}, d.Usual...)
}

const ownState = "state"

// usual are Dirs.Usual.
func usual(uid int, homes ...string) []OwnDir {
	out := []OwnDir{{Resolve(filepath.Join("/run/user", strconv.Itoa(uid))), "runtime directory"}}
	for _, h := range homes {
		if filepath.IsAbs(h) {
			out = append(out, OwnDir{Resolve(filepath.Join(h, ".config/ai-sandbox")), "configuration"},
				OwnDir{Resolve(filepath.Join(h, ".local/state/ai-sandbox")), ownState}, OwnDir{Resolve(filepath.Join(h, ".cache/ai-sandbox")), "cache"})
		}
	}
	return out
}

// Runtime is ai-sandbox's own runtime directory: below the user's, or below the
// state where there is none.
func (d Dirs) Runtime() string {
	if d.XDGRuntime == "" {
		return filepath.Join(d.State, "run")
	}
	return filepath.Join(d.XDGRuntime, "ai-sandbox")
}

// A Tool is a helper program.
type Tool struct {
	// Path is absolute, or "" when none was found.
	Path string
	// Version is what podman, bubblewrap and squid call themselves ("5.4.2").
	Version string
	// MapHostLoopback: this pasta has --map-host-loopback.
	MapHostLoopback bool
	// OpenSSL: this squid is built with it.
	OpenSSL bool
	// Setuid: bubblewrap is installed with that bit.
	Setuid bool
	// Refused is what bubblewrap says where it can't make a jail, or "".
	Refused string
	// Err is why it could not be asked.
	Err string
}

// Input is what Probe is told; host reads no environment itself.
type Input struct {
	// Cwd is where ai-sandbox was started.
	Cwd string
	// Env is the caller's environment.
	Env map[string]string
	// Config, State, Cache, Runtime and Home are the directories that the
	// environment names.
	Config, State, Cache, Runtime, Home string
	// ConfigFile is the user's configuration file.
	ConfigFile string
	// FileVars are variables of our own that name a file or directory.
	FileVars []string
	// Workspace is a directory that ai-sandbox itself has made in its state for
	// this run: it alone may be the project there. "" is none.
	Workspace string
	// AnyDir is for what mounts no project: a directory that no run may mount
	// is then no project, instead of a problem.
	AnyDir bool
	// NoProject: nothing is mounted, wherever ai-sandbox was started.
	NoProject bool
}

// UserHome is the home that the user database names, or "".
func UserHome() string {
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return ""
}

// Probe gathers the facts. It fails only where nothing can be said without the
// answer.
func Probe(in Input) (Facts, error) {
	f := Facts{
		OS: runtime.GOOS, UID: os.Getuid(), GID: os.Getgid(),
		SubUIDs: -1, SubGIDs: -1,
	}
	var err error
	if f.Project, err = resolveDir(in.Cwd); err != nil {
		return f, fmt.Errorf("resolve the project directory: %w", err)
	}
	f.User = strconv.Itoa(f.UID)
	if u, err := user.Current(); err == nil {
		f.User = u.Username
		if u.HomeDir != in.Home && u.HomeDir != "" {
			f.PasswdHome = Resolve(u.HomeDir)
		}
	}
	f.Home = Resolve(in.Home)
	f.Dirs = Dirs{
		Config: Resolve(in.Config), State: Resolve(in.State), Cache: Resolve(in.Cache),
		XDGRuntime: Resolve(in.Runtime),
		Store:      Resolve(filepath.Join(dataHome(in), "containers")),
		Usual:      usual(f.UID, f.Home, f.PasswdHome),
	}
	if info, err := os.Stat(f.Dirs.XDGRuntime); err == nil && f.Dirs.XDGRuntime != "" {
		f.Dirs.RuntimeMode = info.Mode()
		f.Dirs.RuntimeOwner = owner(info)
	}
	if in.Workspace != "" && f.Project.Path == in.Workspace && f.Project.Path != f.Dirs.State && within(f.Project.Path, f.Dirs.State) {
		f.Workspace = f.Project.Path
	}
	if in.NoProject || in.AnyDir && projectProblem(f) != "" {
		f.Project = Dir{}
	}
	f.Specials = specials(in.Env, f.Home)
	f.RemoteEnv, f.Steered = steered(in.Env, in.FileVars, f.Project.Path)
	if Through(in.ConfigFile, f.Project.Path) {
		f.Steered = append(f.Steered, in.ConfigFile) // a link, as from a dotfiles tree
	}
	f.ContainersSteered = containersSteered(in, f.Project.Path)
	for _, dir := range [][2]string{{in.Config, f.Dirs.Config}, {in.State, f.Dirs.State}, {in.Cache, f.Dirs.Cache}, {in.Runtime, f.Dirs.XDGRuntime}} {
		// Where it ends in the project, that is the project's problem.
		if !within(dir[1], f.Project.Path) && Through(dir[0], f.Project.Path) {
			f.Steered = append(f.Steered, dir[0])
		}
	}
	_, err = os.Stat("/sys/fs/selinux/enforce")
	f.SELinux = err == nil
	f.SearchPath = searchPath(in.Env["PATH"], f.Project.Path, f.UID)
	f.Cgroups = probeCgroups("/", f.UID, f.Dirs.XDGRuntime, f.User)
	return f, nil
}

func dataHome(in Input) string {
	if d := in.Env["XDG_DATA_HOME"]; d != "" {
		return d
	}
	return filepath.Join(in.Home, ".local/share")
}

func resolveDir(path string) (Dir, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Dir{}, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return Dir{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return Dir{}, &fs.PathError{Op: "open", Path: real, Err: syscall.ENOTDIR}
	}
	return Dir{Path: real, Owner: int(st.Uid), Dev: st.Dev, Ino: st.Ino}, nil
}

// Resolve follows the symlinks of the part of a path that exists. An empty or
// relative path stays as it is; Check refuses those.
func Resolve(path string) string {
	if !filepath.IsAbs(path) {
		return path
	}
	path = filepath.Clean(path)
	rest := ""
	for p := path; ; {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(real, rest)
		}
		if p == "/" {
			return path
		}
		rest = filepath.Join(filepath.Base(p), rest)
		p = filepath.Dir(p)
	}
}

// within tells whether path is dir or lies below it.
func within(path, dir string) bool {
	return dir != "" && (path == dir || dir == "/" || strings.HasPrefix(path, dir+"/"))
}

// remoteVars make podman's clients talk to a service other than the user's own.
var remoteVars = []string{"CONTAINER_HOST", "CONTAINER_CONNECTION"}

// steeringVars name files and directories that ai-sandbox or podman obey, besides
// Input.FileVars. In the project the sandboxed command could write them.
var steeringVars = []string{
	"HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR",
	"TMPDIR", "REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF", "REGISTRIES_CONFIG_PATH",
	"DBUS_SESSION_BUS_ADDRESS", // whoever answers there is taken for systemd
}

func steered(env map[string]string, own []string, project string) (remote string, steered []string) {
	for _, name := range remoteVars {
		if env[name] != "" {
			remote = name
			break
		}
	}
	for _, name := range slices.Concat(steeringVars, own) {
		paths := []string{env[name]}
		switch name {
		case "SSL_CERT_DIR": // a list, as crypto/x509 and openssl read it
			paths = strings.Split(env[name], ":")
		case "DBUS_SESSION_BUS_ADDRESS":
			paths = busSockets(env)
		}
		if slices.ContainsFunc(paths, func(p string) bool { return p != "" && (!filepath.IsAbs(p) || Through(p, project)) }) {
			steered = append(steered, name)
		}
	}
	return remote, steered
}

// subIDs counts a user's subordinate ids in a file, or returns -1 when the
// system keeps them elsewhere.
func subIDs(file, name string, uid int) int {
	if data, err := os.ReadFile("/etc/nsswitch.conf"); err == nil && subIDsElsewhere(data) {
		return -1
	}
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return -1
	}
	return countSubIDs(data, name, uid)
}

func subIDsElsewhere(nsswitch []byte) bool {
	for line := range strings.Lines(string(nsswitch)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == "subid" {
			return strings.TrimSpace(value) != "files"
		}
	}
	return false
}

func countSubIDs(data []byte, name string, uid int) int {
	total := 0
	for sc := bufio.NewScanner(bytes.NewReader(data)); sc.Scan(); {
		parts := strings.Split(strings.TrimSpace(sc.Text()), ":")
		if len(parts) != 3 || parts[0] != name && parts[0] != strconv.Itoa(uid) {
			continue
		}
		if n, err := strconv.Atoi(parts[2]); err == nil && n > 0 {
			total += n
		}
	}
	return total
}

func owner(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
