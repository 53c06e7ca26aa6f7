// Judging the facts: pure, and one sentence a refusal.

package host

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MinPodman is the first major version of podman that is good enough.
const MinPodman = 5

// MinSubIDs is the range that an image's ids need (nobody is 65534).
const MinSubIDs = 65536

// A Verdict is the outcome of one check.
type Verdict struct {
	// Name is what was checked.
	Name string
	// Problem is empty when all is well, else one sentence that says what is
	// wrong and what to do.
	Problem string
	// Detail is what was found, for the doctor.
	Detail string
	// Fix is a command that would help, or "".
	Fix string
}

// OK tells whether nothing is wrong.
func (v Verdict) OK() bool { return v.Problem == "" }

// Problems returns the verdicts that are not OK.
func Problems(list []Verdict) []Verdict {
	return slices.DeleteFunc(slices.Clone(list), Verdict.OK)
}

// CheckProject judges where ai-sandbox was started: what no run, and no
// printout of one, gets past.
func CheckProject(f Facts) []Verdict {
	return []Verdict{
		{Name: "system", Detail: f.OS, Problem: when(f.OS != "linux", "ai-sandbox needs Linux, and this is %s; run it in a Linux machine or VM", f.OS)},
		{Name: "project", Detail: projectDetail(f), Problem: projectProblem(f)},
		{Name: "configuration", Detail: quote(f.Dirs.Config), Problem: steeredProblem(f)},
	}
}

// Check judges everything that a run on podman's runtime needs. Facts without
// Tools have no verdict on those.
func Check(f Facts) []Verdict {
	out := CheckProject(f)
	out = append(out,
		Verdict{Name: "user", Detail: fmt.Sprintf("%s (uid %d)", quote(f.User), f.UID),
			Problem: when(f.UID == 0, "podman's runtime must not run as root; start ai-sandbox as a normal user")},
		Verdict{Name: "service", Detail: "the user's own podman", Problem: when(f.RemoteEnv != "",
			"%s points at another podman service, which can't be trusted to enforce anything here; unset %s", f.RemoteEnv, f.RemoteEnv),
			Fix: "unset " + f.RemoteEnv},
		runtimeDir(f),
	)
	if f.Tools {
		out = append(out, podman(f), pasta(f), subIDVerdict(f))
	}
	for i := range out {
		if out[i].OK() {
			out[i].Fix = ""
		}
	}
	return out
}

func podman(f Facts) Verdict {
	v := Verdict{Name: "podman", Detail: quote(f.Podman.Path) + " " + quote(f.Podman.Version), Fix: "sudo apt-get install podman"}
	const local = "or choose another runtime with --runtime local"
	major, _ := strconv.Atoi(strings.SplitN(f.Podman.Version, ".", 2)[0])
	switch {
	case f.Podman.Path == "":
		v.Problem = "podman is not installed; install podman 5 or later, " + local
	case f.Podman.Err != "":
		v.Problem = fmt.Sprintf("podman does not say its version (%s); repair it, %s", f.Podman.Err, local)
	case major < MinPodman:
		v.Problem = fmt.Sprintf("podman is %s, and 5 or later is needed; install a newer one, %s", quote(f.Podman.Version), local)
	}
	return v
}

func pasta(f Facts) Verdict {
	v := Verdict{Name: "pasta", Detail: quote(f.Pasta.Path) + " with --map-host-loopback", Fix: "sudo apt-get install passt"}
	switch {
	case f.Pasta.Path == "":
		v.Problem = "pasta is not installed; install passt of 2024-08 or later"
	case f.Pasta.Err != "":
		v.Problem = fmt.Sprintf("pasta does not say what it can do (%s); repair it", f.Pasta.Err)
	case !f.Pasta.MapHostLoopback:
		v.Problem = "pasta has no --map-host-loopback; install passt of 2024-08 or later"
	}
	return v
}

func subIDVerdict(f Facts) Verdict {
	v := Verdict{
		Name:   "subuid",
		Detail: fmt.Sprintf("%s and %s subordinate ids", count(f.SubUIDs), count(f.SubGIDs)),
		Fix:    "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 " + f.User,
	}
	short := func(n int) bool { return n >= 0 && n < MinSubIDs }
	switch {
	case f.SubUIDs == 0 || f.SubGIDs == 0:
		v.Problem = fmt.Sprintf("user %s has no range of subordinate ids in /etc/subuid and /etc/subgid; add one with: %s", quote(f.User), v.Fix)
	case short(f.SubUIDs) || short(f.SubGIDs):
		v.Problem = fmt.Sprintf("user %s has fewer than %d subordinate ids in /etc/subuid or /etc/subgid; add some with: %s", quote(f.User), MinSubIDs, v.Fix)
	}
	return v
}

func count(n int) string {
	if n < 0 {
		return "an unknown number of" // kept by a service
	}
	return strconv.Itoa(n)
}

func runtimeDir(f Facts) Verdict {
	v := Verdict{Name: "runtime directory", Detail: quote(f.Dirs.XDGRuntime), Fix: "sudo loginctl enable-linger " + f.User}
	dir := "/run/user/" + strconv.Itoa(f.UID)
	switch {
	case f.Dirs.XDGRuntime == "":
		v.Problem = fmt.Sprintf("XDG_RUNTIME_DIR is not set, and podman needs it; log in as this user, or make %s exist (%s) and export it", dir, v.Fix)
	case f.Dirs.RuntimeMode == 0 || !f.Dirs.RuntimeMode.IsDir():
		v.Problem = fmt.Sprintf("XDG_RUNTIME_DIR %s is not a directory; make it (%s) or point the variable at %s", quote(f.Dirs.XDGRuntime), v.Fix, dir)
	case f.Dirs.RuntimeOwner != f.UID || f.Dirs.RuntimeMode.Perm()&0o077 != 0:
		v.Problem = fmt.Sprintf("XDG_RUNTIME_DIR %s is open to other users; point the variable at %s", quote(f.Dirs.XDGRuntime), dir)
	}
	return v
}

func steeredProblem(f Facts) string {
	if len(f.Steered) == 0 || projectProblem(f) != "" { // one refusal is enough
		return ""
	}
	return fmt.Sprintf("%s must be absolute and outside the project, or a sandboxed command could rewrite what ai-sandbox obeys; point it elsewhere",
		strings.Join(f.Steered, ", "))
}

// systemTrees are refused with what is below them, systemDirsOnly only
// themselves.
var (
	systemTrees    = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr/bin", "/usr/sbin", "/usr/lib"}
	systemDirsOnly = []string{"/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/usr", "/usr/local", "/usr/share", "/usr/src", "/var", "/var/lib", "/var/tmp"}
	// secretTrees and homeDirsOnly are the same below a home.
	secretTrees  = []string{".ssh", ".gnupg", ".aws", ".kube", ".docker", ".password-store"}
	homeDirsOnly = []string{".config", ".local", ".local/share", ".local/state", ".local/bin", ".cache"}
)

func projectDetail(f Facts) string {
	if f.Project.Path == "" {
		return "none: no run may mount this directory"
	}
	return quote(f.Project.Path)
}

func projectProblem(f Facts) string {
	p := f.Project.Path
	q := quote(p)
	const elsewhere = "start ai-sandbox in the directory of one project"
	homes := []string{f.Home, f.PasswdHome}
	switch {
	case p == "":
		return "" // there is none
	case p == "/":
		return "the project would be /, the whole machine; " + elsewhere
	case strings.Contains(p, ":"):
		return fmt.Sprintf("project path %s holds a \":\", which podman can't mount; rename the directory", q)
	case !utf8.ValidString(p):
		return fmt.Sprintf("project path %s is not valid UTF-8; rename the directory", q)
	case !filepath.IsAbs(f.Home):
		return "HOME is not an absolute path; set it to your home directory"
	}
	for _, h := range homes {
		switch {
		case h == "":
		case p == h:
			return fmt.Sprintf("the project would be your home %s, with everything in it; %s", q, elsewhere)
		case within(h, p):
			return fmt.Sprintf("the project would be %s, which holds your home; %s", q, elsewhere)
		}
		for _, d := range secretTrees {
			if h != "" && within(p, filepath.Join(h, d)) {
				return fmt.Sprintf("the project would be %s, which holds credentials; %s", q, elsewhere)
			}
		}
		for _, d := range homeDirsOnly {
			if h != "" && p == filepath.Join(h, d) {
				return fmt.Sprintf("the project would be %s, which holds the settings of every program; %s", q, elsewhere)
			}
		}
	}
	for _, d := range systemTrees {
		if within(p, d) {
			return fmt.Sprintf("the project would be %s, in the system's %s; %s", q, d, elsewhere)
		}
	}
	if slices.Contains(systemDirsOnly, p) {
		return fmt.Sprintf("the project would be %s, a directory of the system; %s", q, elsewhere)
	}
	for _, own := range []struct{ dir, what string }{
		{f.Dirs.Config, "configuration"}, {f.Dirs.State, "state"}, {f.Dirs.Cache, "cache"},
		{f.Dirs.XDGRuntime, "runtime directory"}, {f.Dirs.Store, "podman store"},
	} {
		if len(f.Steered) == 0 && overlap(p, own.dir) { // else that is said already
			return fmt.Sprintf("the project %s and ai-sandbox's %s %s lie in one another; %s", q, own.what, quote(own.dir), elsewhere)
		}
	}
	if f.Project.Owner != f.UID {
		return fmt.Sprintf("the project %s belongs to another user (uid %d); %s of your own", q, f.Project.Owner, elsewhere)
	}
	return ""
}

// overlap tells whether one path is, holds or lies in the other.
func overlap(a, b string) bool {
	return a != "" && b != "" && (within(a, b) || within(b, a))
}

func when(cond bool, format string, args ...any) string {
	if !cond {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// quote shows a string of the machine's or the user's with whatever is not
// printable escaped.
func quote(s string) string {
	q := strconv.Quote(s)
	if q[1:len(q)-1] == s && !strings.ContainsAny(s, " ") {
		return s
	}
	return q
}
