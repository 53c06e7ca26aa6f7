// Judging the facts: pure, and one sentence a refusal.

package host

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"ai-sandbox/policy"
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
	// Info: a problem is told and fails nothing, since it is another runtime's
	// than the chosen one, or no run fails by it.
	Info bool
}

// NotTried is the verdict on what could not be looked at, and Untried knows it.
func NotTried(name, why, fix string) Verdict {
	return Verdict{Name: name, Problem: notTried + why, Fix: fix, Info: true}
}

// Untried tells whether the verdict is on nothing that was looked at.
func (v Verdict) Untried() bool { return strings.HasPrefix(v.Problem, notTried) }

const notTried = "not tried: "

// OK tells whether nothing is wrong.
func (v Verdict) OK() bool { return v.Problem == "" }

// Problems returns the verdicts that are not OK and not for information alone.
func Problems(list []Verdict) []Verdict {
	return slices.DeleteFunc(slices.Clone(list), func(v Verdict) bool { return v.OK() || v.Info })
}

// CheckProject judges where ai-sandbox was started: what no run, and no
// printout of one, gets past.
func CheckProject(f Facts) []Verdict {
	return []Verdict{
		{Name: "system", Detail: f.OS, Problem: when(f.OS != "linux", "ai-sandbox needs Linux, and this is %s; run it in a Linux machine or VM", f.OS)},
		{Name: "project", Detail: projectDetail(f), Problem: projectProblem(f), Fix: projectFix(f)},
		{Name: "configuration", Detail: quote(f.Dirs.Config), Problem: steeredProblem(f), Fix: steeredFix(f)},
	}
}

// Check judges everything that a run on a runtime needs. Facts without that
// runtime's programs (see ProbeTools) have no verdict on those.
func Check(f Facts, runtime string) []Verdict {
	out := CheckProject(f)
	switch runtime {
	case policy.RuntimePodman:
		out = append(out, checkPodman(f)...)
	case policy.RuntimeLocal:
		out = append(out, checkLocal(f)...)
	default:
		out = append(out, Verdict{Name: "runtime", Problem: fmt.Sprintf("runtime %s is not known; use podman or local", quote(runtime))})
	}
	return withoutFix(append(out, limits(f)))
}

// Doctor is Check, and for information what the other runtime lacks.
func Doctor(f Facts, runtime string) []Verdict {
	out := Check(f, runtime)
	var other []Verdict
	switch runtime {
	case policy.RuntimePodman:
		other = append(checkLocal(f), CheckSquid(f))
	case policy.RuntimeLocal:
		squid := CheckSquid(f)
		squid.Info = true // of the one gate engine, and not the usual one
		out = append(out, squid)
		other = checkPodman(f)
	}
	for _, v := range other {
		// What is well with both is told once.
		if v.OK() && slices.ContainsFunc(out, func(o Verdict) bool { return o.Name == v.Name }) {
			continue
		}
		v.Info = true
		out = append(out, v)
	}
	return withoutFix(out)
}

// withoutFix leaves a fix only where there is something to mend.
func withoutFix(list []Verdict) []Verdict {
	for i := range list {
		if list[i].OK() {
			list[i].Fix = ""
		}
	}
	return list
}

// checkPodman is what podman's runtime needs.
func checkPodman(f Facts) []Verdict {
	out := []Verdict{
		{Name: "user", Detail: userDetail(f),
			Problem: when(f.UID == 0, "podman's runtime must not run as root; start ai-sandbox as a normal user, or choose another runtime with --runtime local (in the configuration file: runtime = local)"),
			Fix:     "ai-sandbox doctor --runtime local"},
		{Name: "service", Detail: "no variable names another podman than the user's own", Problem: when(f.RemoteEnv != "",
			"%s points at another podman service, which can't be trusted to enforce anything here; unset %s", f.RemoteEnv, f.RemoteEnv),
			Fix: "unset " + f.RemoteEnv},
		runtimeDir(f),
		{Name: "containers", Detail: quote(filepath.Join(f.Home, ".config/containers")), Problem: when(len(f.ContainersSteered) > 0,
			"%s must be outside the project, or a sandboxed command could rewrite what podman obeys; start ai-sandbox elsewhere", strings.Join(f.ContainersSteered, ", "))},
	}
	if f.Tools[policy.RuntimePodman] {
		out = append(out, podman(f), pasta(f), subIDVerdict(f))
	}
	return out
}

// checkLocal is what the local runtime needs.
func checkLocal(f Facts) []Verdict {
	out := []Verdict{
		{Name: "user", Detail: userDetail(f)},
		localRuntimeDir(f),
	}
	if f.Tools[policy.RuntimeLocal] {
		out = append(out, bubblewrap(f))
		if bubblewrap(f).OK() {
			out = append(out, userNamespace(f))
		}
	}
	return out
}

func userDetail(f Facts) string { return fmt.Sprintf("%s (uid %d)", quote(f.User), f.UID) }

func podman(f Facts) Verdict {
	v := Verdict{Name: "podman", Detail: quote(f.Podman.Path) + " " + quote(f.Podman.Version), Fix: InstallCommand(f, "podman", false)}
	const local = "or choose another runtime with --runtime local (in the configuration file: runtime = local)"
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
	v := Verdict{Name: "pasta", Detail: quote(f.Pasta.Path) + " with --map-host-loopback", Fix: InstallCommand(f, "passt", false)}
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

// MinBubblewrap is the first version with --disable-userns: 0.8.
const MinBubblewrap = 8

func bubblewrap(f Facts) Verdict {
	b := f.Bwrap
	v := Verdict{Name: "bubblewrap", Detail: quote(b.Path) + " " + quote(b.Version), Fix: InstallCommand(f, "bubblewrap", false)}
	const other = "or choose another runtime with --runtime podman"
	var major, minor int
	n, _ := fmt.Sscanf(b.Version, "%d.%d", &major, &minor)
	switch {
	case b.Path == "":
		v.Problem = "bubblewrap is not installed; install it, " + other
	case b.Err != "":
		v.Problem = fmt.Sprintf("bubblewrap does not say its version (%s); repair it, %s", b.Err, other)
	case n < 2 || major == 0 && minor < MinBubblewrap:
		v.Problem = fmt.Sprintf("bubblewrap is %s, and 0.8 or later is needed; install a newer one, %s", quote(b.Version), other)
	case b.Setuid:
		// Such a one makes namespaces that belong to root: it can't switch off
		// those below (bwrap(1), --disable-userns), and nobody can look into them.
		v.Problem = fmt.Sprintf("bubblewrap at %s is setuid, and then can't keep a command from making namespaces of its own; take the bit away", quote(b.Path))
		v.Fix = "sudo chmod u-s " + b.Path
	}
	return v
}

// appArmorFix lets one program make user namespaces.
func appArmorFix(program string) string {
	const fix = `printf 'abi <abi/4.0>,\ninclude <tunables/global>\nprofile %[1]s %[2]s flags=(unconfined) {\n  userns,\n}\n' | sudo tee /etc/apparmor.d/%[1]s && sudo apparmor_parser -r /etc/apparmor.d/%[1]s`
	return fmt.Sprintf(fix, filepath.Base(program), program)
}

// kernelForbids is the setting of the kernel that keeps a program from making a user
// namespace, if one does, and the command that mends it, or "" twice.
func kernelForbids(f Facts, program string) (reason, fix string) {
	k := f.Kernel
	switch {
	case k.MaxUserNS == "0":
		fix = "sudo sysctl user.max_user_namespaces=15000"
		return "user.max_user_namespaces is 0, so nobody can make a user namespace; raise it with: " + fix, fix
	case k.UnprivilegedClone == "0" && f.UID != 0:
		fix = "sudo sysctl kernel.unprivileged_userns_clone=1"
		return "kernel.unprivileged_userns_clone is 0, so only root can make a user namespace; allow it with: " + fix, fix
	case k.AppArmorRestricts == "1":
		name := filepath.Base(program)
		if name == "bwrap" {
			name = "bubblewrap"
		}
		return "AppArmor keeps " + name + " from making a user namespace (kernel.apparmor_restrict_unprivileged_userns is 1); give it a profile that allows it, as ai-sandbox doctor shows, or set that to 0",
			appArmorFix(program)
	}
	return "", ""
}

// userNamespace judges whether bubblewrap has made a jail just now, and names
// what is in the way if it has not.
func userNamespace(f Facts) Verdict {
	v := Verdict{Name: "user namespace", Detail: "bubblewrap makes one"}
	why := func(text string) string { return text + " (bubblewrap says: " + quote(f.Bwrap.Refused) + ")" }
	reason, fix := kernelForbids(f, f.Bwrap.Path)
	switch {
	case f.Bwrap.Refused == "":
	case fix != "":
		v.Problem, v.Fix = why(reason), fix
	default:
		v.Fix = f.Bwrap.Path + " --unshare-user --ro-bind / / true"
		v.Problem = why("bubblewrap can't make a user namespace here; where this is a container or a VM, its own settings forbid it: run ai-sandbox outside of it, or allow it there")
	}
	return v
}

// CheckSquid judges the squid that the local runtime's gate may be, instead of
// the builtin one.
func CheckSquid(f Facts) Verdict {
	v := Verdict{Name: "squid", Detail: quote(f.Squid.Path) + " with OpenSSL", Fix: InstallCommand(f, "squid-openssl", false)}
	switch {
	case f.Squid.Path == "":
		v.Problem = "squid is not installed at " + SquidPath + "; install squid-openssl, or use --gate-engine builtin"
	case f.Squid.Err != "":
		v.Problem = fmt.Sprintf("squid does not say what it can do (%s); repair it, or use --gate-engine builtin", f.Squid.Err)
	case !f.Squid.OpenSSL:
		v.Problem = "squid has no OpenSSL, without which it can't see a TLS server's name; install squid-openssl in its place, or use --gate-engine builtin"
	}
	return withoutFix([]Verdict{v})[0]
}

// localRuntimeDir: podman's needs one, the local runtime makes do without.
func localRuntimeDir(f Facts) Verdict {
	if f.Dirs.XDGRuntime == "" {
		return Verdict{Name: "runtime directory", Detail: "none; " + quote(f.Dirs.Runtime()) + " is used"}
	}
	v := runtimeDir(f)
	if !v.OK() {
		v.Problem, v.Fix = v.Problem+", or unset it", "unset XDG_RUNTIME_DIR"
	}
	return v
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

// steeredFix takes variables away that lead astray; a link is moved by hand.
func steeredFix(f Facts) string {
	if len(f.Steered) > 0 && filepath.IsAbs(f.Steered[0]) {
		return "ls -ld " + quote(f.Steered[0])
	}
	return "unset " + strings.Join(f.Steered, " ")
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

// projectFix is for whatever is wrong with the project: another one.
func projectFix(f Facts) string {
	if !filepath.IsAbs(f.Home) {
		return "export HOME=/home/" + f.User
	}
	return "mkdir -p ~/project && cd ~/project"
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
	case !utf8.ValidString(p):
		return fmt.Sprintf("project path %s is not valid UTF-8; rename the directory", q)
	case strings.Contains(p, ":"):
		return fmt.Sprintf("project path %s holds a \":\", which separates the parts of a mount; rename the directory", q)
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
	for _, own := range f.Dirs.own() {
		if own.What == ownState && p == f.Workspace {
			continue // made for this run, beside everything else
		}
		if len(f.Steered) == 0 && overlap(p, own.Path) { // else that is said already
			return fmt.Sprintf("the project %s and ai-sandbox's %s %s lie in one another; %s", q, own.What, quote(own.Path), elsewhere)
		}
	}
	if special := f.SpecialIn(p, nil); special != nil {
		return fmt.Sprintf("the project %s would show %s (%s); %s", q, special.What, quote(special.Path), elsewhere)
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
