// The tests, each given the way to make a project and to run ai-sandbox in it.

package guarded

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Box is a project of a test's own, with the probe in it, and the way ai-sandbox
// is started in it.
type Box struct {
	Dir string
	// Run is one ai-sandbox from its start to its end.
	Run func(args ...string) (code int, out, errOut string)
	// Start is one that runs beside the test. Its input ends with end, which
	// returns what it had to say on standard error; kill is SIGKILL to it.
	Start func(args ...string) (end func() (code int, errOut string), kill func())
	// In is the same in another directory.
	In func(dir string) Box
}

// A Suite are the tests of protected paths on one runtime.
type Suite struct {
	New func(t *testing.T) Box
}

func (b Box) ok(t *testing.T, args ...string) (out, errOut string) {
	t.Helper()
	code, out, errOut := b.Run(args...)
	if code != 0 {
		t.Fatalf("ai-sandbox %q: exit code %d\n%s\n%s", args, code, out, errOut)
	}
	return out, errOut
}

func (b Box) tree(t *testing.T) map[string]string {
	t.Helper()
	tree, err := Tree(b.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func (b Box) eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func (b Box) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(b.Dir, name))
	return err == nil
}

// put writes a file of the test's.
func (b Box) put(t *testing.T, name, text string) {
	t.Helper()
	full := filepath.Join(b.Dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// inOwnParent has the project in a directory of its own, where a worktree can be
// beside it.
func inOwnParent(t *testing.T, b Box) Box {
	t.Helper()
	dir := filepath.Join(b.Dir, "shop")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	probe, err := os.ReadFile(filepath.Join(b.Dir, "probe"))
	if err != nil {
		t.Fatal(err)
	}
	if err := writeProgram(filepath.Join(dir, "probe"), probe); err != nil {
		t.Fatal(err)
	}
	return b.In(dir)
}

// writeProgram is drive.WriteProgram, which stands on this package.
func writeProgram(path string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, 0o755)
}

func net(args ...string) []string { return append([]string{"--net", "none"}, args...) }

// Plant: nothing that is known gets anything to a protected path, whether it is
// there or not; with --unprotect the same does. in starts ai-sandbox in another
// directory.
func (s Suite) Plant(t *testing.T) {
	all := slices.Concat(Names, InGit, Nested)
	configured := []string{"ci/hooks", "shared.conf"}
	for name, c := range map[string]struct {
		project func(dir string) error
		holds   []string // a new worktree can be made in a repository
	}{
		"all there": {func(dir string) error {
			_, err := Repository(dir)
			return err
		}, all},
		"a fresh repository": {Fresh, slices.Concat(Names, InGit, []string{".git/modules"})},
		"git's configuration leads into it": {func(dir string) error {
			err := Fresh(dir)
			for _, args := range [][]string{{"config", "core.hooksPath", "ci/hooks"}, {"config", "include.path", "../shared.conf"}} {
				if err == nil {
					_, err = Git(dir, args...)
				}
			}
			if err == nil {
				err = os.Mkdir(filepath.Join(dir, "ci"), 0o755)
			}
			return err
		}, slices.Concat(Names, InGit, configured)},
		"an empty directory": {func(string) error { return nil }, append([]string{".git"}, Names...)},
	} {
		t.Run(name, func(t *testing.T) {
			b := inOwnParent(t, s.New(t))
			if err := c.project(b.Dir); err != nil {
				t.Fatal(err)
			}
			before := Below(b.tree(t), c.holds)
			out, errOut := b.ok(t, net(append([]string{"--", "./probe", "plant"}, slices.Concat(all, configured)...)...)...)
			for _, d := range Differences(before, Below(b.tree(t), c.holds)) {
				t.Errorf("%s", d)
			}
			if t.Failed() {
				t.Logf("%s%s", out, errOut)
			}
		})
	}
}

// Unprotect is the positive control: each path that is given free alone takes what
// is planted, and no other one does.
func (s Suite) Unprotect(t *testing.T) {
	b := inOwnParent(t, s.New(t))
	if err := Fresh(b.Dir); err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(Names, InGit)
	for _, p := range all {
		before := b.tree(t)
		_, errOut := b.ok(t, net(append([]string{"--unprotect", p, "--", "./probe", "plant"}, all...)...)...)
		for _, d := range Differences(Below(before, all), Below(b.tree(t), all)) {
			if !strings.HasPrefix(d, p+":") && !strings.HasPrefix(d, p+"/") {
				t.Errorf("--unprotect %s: %s", p, d)
			}
		}
		text, err := os.ReadFile(filepath.Join(b.Dir, p))
		if err != nil {
			text, err = os.ReadFile(filepath.Join(b.Dir, p, "planted"))
		}
		if err != nil || string(text) != "PLANTED\n" {
			t.Errorf("--unprotect %s: the positive control planted nothing: %q, %v", p, text, err)
		}
		if !strings.Contains(errOut, "  "+p) {
			t.Errorf("--unprotect %s: nobody is told of it: %s", p, errOut)
		}
		if err := os.RemoveAll(filepath.Join(b.Dir, p)); err != nil {
			t.Fatal(err)
		}
		if p == ".git/config" || p == ".git/hooks" {
			if _, err := Git(b.Dir, "init", "-q"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, errOut := b.ok(t, net("--unprotect", ".git", "--", "sh", "-c", "mv .git .old; mkdir -p .git/hooks; echo evil >.git/hooks/pre-commit")...); !b.exists(".git/hooks/pre-commit") || !strings.Contains(errOut, ".git/hooks/pre-commit (git obeys it)") {
		t.Errorf("--unprotect .git: the rename of facts.md failed: %s", errOut)
	}
}

// Killed: after SIGKILL of ai-sandbox the next command, or clean, leaves the tree as
// it was to the byte.
func (s Suite) Killed(t *testing.T) {
	for name, project := range map[string]func(dir string) error{
		"empty":      func(string) error { return nil },
		"repository": Fresh,
	} {
		for _, next := range [][]string{{"clean"}, net("--", "true")} {
			t.Run(name+" "+next[0], func(t *testing.T) {
				b, other := s.New(t), s.New(t)
				if err := project(b.Dir); err != nil {
					t.Fatal(err)
				}
				before := b.tree(t)
				end, kill := b.Start(net("--", "sh", "-c", "echo >ready; sleep 600")...)
				b.eventually(t, "the command", func() bool { return b.exists("ready") })
				if len(b.tree(t)) < len(before)+11 {
					t.Errorf("the control: there are no placeholders: %v", b.tree(t))
				}
				kill()
				if code, errOut := end(); code >= 0 && code != 137 {
					t.Errorf("exit code %d: %s", code, errOut)
				}
				other.ok(t, next...) // elsewhere
				if err := os.Remove(filepath.Join(b.Dir, "ready")); err != nil {
					t.Error(err)
				}
				for _, d := range Differences(before, b.tree(t)) {
					t.Error(d)
				}
			})
		}
	}
}

// Shared: two sessions in one project. The one that ends takes nothing from the
// other one's protection, and the last one takes the placeholders.
func (s Suite) Shared(t *testing.T) {
	b := s.New(t)
	if err := Fresh(b.Dir); err != nil {
		t.Fatal(err)
	}
	before := b.tree(t)
	end, _ := b.Start(net("--", "sh", "-c", "echo >ready; read x; ./probe plant .git/hooks .git/config.worktree .vscode .envrc .mcp.json; true")...)
	b.eventually(t, "the first", func() bool { return b.exists("ready") })
	for range 3 { // each adopts the first one's placeholders, and ends before it
		b.ok(t, net("--", "true")...)
	}
	end2, _ := b.Start(net("--", "sh", "-c", "echo >ready2; read x; ./probe plant .git/hooks .git/config.worktree .vscode .envrc .mcp.json; true")...)
	b.eventually(t, "the second", func() bool { return b.exists("ready2") })
	for i, end := range []func() (int, string){end, end2} {
		if i == 1 && !b.exists(".vscode") {
			t.Error("the first one's end took the placeholders of the second")
		}
		if code, errOut := end(); code != 0 || strings.Contains(errOut, "protected") {
			t.Errorf("exit code %d: %s", code, errOut)
		}
	}
	after := b.tree(t)
	maps.DeleteFunc(after, func(p, _ string) bool { return strings.HasPrefix(p, "ready") || strings.HasPrefix(p, "litter") })
	for _, d := range Differences(before, after) {
		t.Error(d)
	}
}

// Storm: many short sessions at once in one project all start, and leave nothing.
func (s Suite) Storm(t *testing.T, width, rounds int) {
	b := s.New(t)
	if err := Fresh(b.Dir); err != nil {
		t.Fatal(err)
	}
	before := b.tree(t)
	done := make(chan string, width)
	for range width {
		go func() {
			bad := ""
			for range rounds {
				if code, _, errOut := b.Run(net("--", "sh", "-c", "mkdir .vscode/x || mkdir .git/hooks/x || test ! -e x")...); code != 0 || errOut != "" && !onlyRefused(errOut) {
					bad = errOut
				}
			}
			done <- bad
		}()
	}
	for range width {
		if bad := <-done; bad != "" {
			t.Error(bad)
		}
	}
	for _, d := range Differences(before, b.tree(t)) {
		t.Error(d)
	}
}

func onlyRefused(errOut string) bool {
	for line := range strings.Lines(errOut) {
		if !strings.Contains(line, "mkdir: cannot create directory") && !strings.Contains(line, "the project is mounted at") && !strings.Contains(line, "the default limit of ") {
			return false
		}
	}
	return true
}

// HostTools: git and others on the host live with the placeholders, in the project
// and in a repository that it lies in; git inside commits.
func (s Suite) HostTools(t *testing.T) {
	outer := s.New(t)
	if err := Fresh(outer.Dir); err != nil {
		t.Fatal(err)
	}
	b := inOwnParent(t, outer)
	b.put(t, "package.json", `{"name":"x","version":"1.0.0","scripts":{"t":"echo fine"}}`)
	check := func(when string) {
		t.Helper()
		out, err := Git(outer.Dir, "status", "--porcelain", "--untracked-files=all")
		if err != nil || out != "?? shop/package.json\n?? shop/probe\n?? shop/ready\n" {
			t.Errorf("%s, git in the repository around it: %q, %v", when, out, err)
		}
		if top, err := Git(b.Dir, "rev-parse", "--show-toplevel"); err != nil || !strings.HasSuffix(strings.TrimSpace(top), filepath.Base(outer.Dir)) {
			t.Errorf("%s, the repository around it is %q, %v", when, top, err)
		}
	}
	b.put(t, "ready", "")
	check("before")
	if err := os.Remove(filepath.Join(b.Dir, "ready")); err != nil {
		t.Fatal(err)
	}
	end, _ := b.Start(net("--", "sh", "-c", "git init -q .; echo $? >ready; git status >/dev/null 2>&1 && echo status; read x; true")...)
	b.eventually(t, "the command", func() bool { return b.exists("ready") })
	check("meanwhile")
	if code, errOut := end(); code != 0 || b.exists(".git") {
		t.Errorf("git init inside: %d, %s", code, errOut)
	}
	check("afterwards")

	own := s.New(t)
	if err := Fresh(own.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Git(own.Dir, "config", "extensions.worktreeConfig", "true"); err != nil {
		t.Fatal(err)
	}
	end, _ = own.Start(net("--", "sh", "-c", "echo new >new; git add -A && git -c user.name=a -c user.email=a@example.com commit -q -m inside && git gc -q && git status --porcelain && git stash list && git worktree list >/dev/null; echo $? >ready; read x; true")...)
	own.eventually(t, "the command", func() bool { return own.exists("ready") })
	for _, args := range [][]string{{"status", "--porcelain"}, {"log", "-1", "--format=%s"}, {"add", "-A"}, {"commit", "-q", "-m", "outside"}, {"gc", "-q"}, {"fsck"}, {"worktree", "list"}, {"stash", "list"}, {"config", "--list"}} {
		if out, err := Git(own.Dir, args...); err != nil || strings.Contains(out, "warning") {
			t.Errorf("git %q: %s, %v", args, out, err)
		}
	}
	if out, err := Git(own.Dir, "ls-files"); err != nil || out != "new\nprobe\nready\n" {
		t.Errorf("placeholders were added: %q, %v", out, err)
	}
	if code, errOut := end(); code != 0 {
		t.Errorf("%d, %s", code, errOut)
	}
	if text, err := os.ReadFile(filepath.Join(own.Dir, "ready")); err != nil || string(text) != "0\n" {
		t.Errorf("git inside: %q, %v", text, err)
	}
	if out, err := Git(own.Dir, "log", "--format=%s"); err != nil || out != "outside\ninside\nfirst\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// Replaced: what the host itself does to a protected path during a run undoes a
// mount, and is told.
func (s Suite) Replaced(t *testing.T) {
	b := s.New(t)
	if err := Fresh(b.Dir); err != nil {
		t.Fatal(err)
	}
	end, _ := b.Start(net("--", "sh", "-c", "echo >ready; read x; echo '[a] b = 1' >>.git/config && echo WRITTEN >written; true")...)
	b.eventually(t, "the command", func() bool { return b.exists("ready") })
	if _, err := Git(b.Dir, "config", "user.name", "host"); err != nil {
		t.Fatal(err)
	}
	b.put(t, ".vscode/settings.json", "{}")
	code, errOut := end()
	if code != 0 || !regexp.MustCompile(`(?m)^ai-sandbox:   \.git/config \(protected, and replaced or removed on this machine`).MatchString(errOut) {
		t.Errorf("the replaced file is not told: %d, %s", code, errOut)
	}
	if !strings.Contains(errOut, ".vscode/settings.json (editors obey it)") || !b.exists(".vscode/settings.json") {
		t.Errorf("what the host put into a placeholder: %s", errOut)
	}
}

// Notices: what a run leaves that tools obey is named, whatever the tree is like;
// what it leaves alone is not.
func (s Suite) Notices(t *testing.T) {
	b := s.New(t)
	b.put(t, "old/Makefile", "all:\n")
	b.put(t, "package.json", "{}")
	if err := Fresh(b.Dir); err != nil {
		t.Fatal(err)
	}
	b.put(t, ".git/modules/lib/HEAD", "x") // without one, none can be made
	time.Sleep(100 * time.Millisecond)     // what is there is older than the run, by the kernel's coarse clock too
	script := `
echo x >AGENTS.md; mkdir -p sub/deep .github/workflows; echo x >sub/deep/Makefile; echo x >.github/workflows/ci.yml
echo '{"scripts":{}}' >package.json; echo x >package-lock.json; touch -d '2001-01-01' AGENTS.md
mkfifo pipe; printf x >"$(printf 'a\033[31m\nb.mk')"; printf x >"$(printf 'bad\377.mk')"
ln -s /etc/passwd Dockerfile; ln -s / loop; ln -s .. sub/up; ln -s old sub/.vscode
mkdir -p node_modules/x vendor/lib; echo x >node_modules/x/package.json
git init -q vendor/lib; echo evil >vendor/lib/.git/hooks/pre-commit; mkdir -p b.git/objects b.git/refs; echo x >b.git/HEAD; echo x >b.git/config
echo plain >plain.txt; echo x >>.git/index.new
mkdir -p .git/modules/evil/objects .git/modules/evil/refs; echo x >.git/modules/evil/HEAD; echo x >.git/modules/evil/config
mkdir -p .git/modules/half; echo x >.git/modules/half/HEAD; echo ../../../src >.git/modules/half/commondir
mkdir -p .git/worktrees/evil; echo x >.git/worktrees/evil/commondir; echo .. >.git/worktrees/evil/gitdir
d=.; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do d=$d/$(printf 'd%.0s' $(seq 200)); mkdir $d 2>/dev/null || break; done
true`
	report := filepath.Join(t.TempDir(), "report.json")
	_, errOut := b.ok(t, net("--report", report, "--", "sh", "-c", script)...)
	for _, want := range []string{
		"AGENTS.md (agents obey it)", "sub/deep/Makefile (build tools run it)", ".github/workflows/ci.yml (continuous integration runs it)",
		"package.json (package managers obey it)", "package-lock.json (package managers obey it)", "pipe (FIFO)", `"a\x1b[31m\nb.mk" (build tools run it)`,
		`"bad\\xff.mk" (build tools run it)`, "Dockerfile (build tools run it)", "node_modules (tools run what is in it, which was not looked at)",
		"vendor/lib/.git/hooks/pre-commit (git obeys it)", "vendor/lib/.git/config (git obeys it)", "b.git/config (git obeys it)",
		".git/modules/evil/config (git obeys it)", ".git/modules/half/commondir (git obeys it)", ".git/worktrees/evil/commondir (git obeys it)", ".git/worktrees/evil/gitdir (git obeys it)", "sub/.vscode (editors obey it)",
	} {
		if !strings.Contains(errOut, "ai-sandbox:   "+want+"\n") {
			t.Errorf("not told: %s", want)
		}
	}
	for _, not := range []string{"old/Makefile", "plain.txt", "passwd", ".sample", "node_modules/x", "probe ", "loop", "\x1b"} {
		if strings.Contains(errOut, not) {
			t.Errorf("told: %q", not)
		}
	}
	text, err := os.ReadFile(report)
	if err != nil || !regexp.MustCompile(`(?s)"changed": \[.*"path": "AGENTS\.md",\s+"what": "agents obey it"`).Match(text) {
		t.Errorf("the report: %s, %v", text, err)
	}
	if t.Failed() {
		t.Log(errOut)
	}
	// Nothing changed, nothing told; and a socket of a server that is gone.
	if _, errOut := b.ok(t, net("--", "true")...); strings.Contains(errOut, "changed in this run") {
		t.Errorf("told without a change: %s", errOut)
	}
	sock := filepath.Join(b.Dir, "sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if len(sock) < 100 {
		end, _ := b.Start(net("--", "sh", "-c", "echo >ready; read x; true")...)
		b.eventually(t, "the command", func() bool { return b.exists("ready") })
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: sock}); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(b.Dir, "probe"), 0o755|os.ModeSetuid); err != nil {
			t.Fatal(err)
		}
		if code, errOut := end(); code != 0 || !strings.Contains(errOut, "  sock (unix socket)") || !strings.Contains(errOut, "  probe (setuid or setgid program)") {
			t.Errorf("%d, %s", code, errOut)
		}
	}
}

// ReadOnly: with --fs ro nothing is put into the project.
func (s Suite) ReadOnly(t *testing.T) {
	b := s.New(t)
	// The placeholders of a writable one are seen while it lasts.
	const look = "test -e .vscode && echo there; true"
	if code, out, errOut := b.Run(net("--", "sh", "-c", look)...); code != 0 || out != "there\n" {
		t.Errorf("the control: %d, %q, %s", code, out, errOut)
	}
	before := b.tree(t)
	if code, out, errOut := b.Run(net("--fs", "ro", "--", "sh", "-c", look)...); code != 0 || out != "" {
		t.Errorf("%d, %q, %s", code, out, errOut)
	}
	for _, d := range Differences(before, b.tree(t)) {
		t.Error(d)
	}
	if out, _ := b.ok(t, net("--fs", "ro", "--print-policy", "--", "true")...); strings.Contains(out, "\nprotected in the project") {
		t.Errorf("%s", out)
	}
	if out, _ := b.ok(t, net("--print-policy", "--", "true")...); !strings.Contains(out, "\nprotected in the project") {
		t.Errorf("the control: %s", out)
	}
}

// Worktree: a worktree gets its repository and no other checkout; what its .git file
// claims is believed only where the repository says the same.
// Where the repository's own path would hide something of the sandbox, it is left out.
func (s Suite) Worktree(t *testing.T, mirrored bool) {
	main := s.New(t)
	repo := filepath.Join(main.Dir, "main")
	if err := os.Mkdir(repo, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(repo, "secret"), []byte("of the main checkout\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	fix, err := Repository(repo)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(main.Dir, "other")
	if _, err := Git(repo, "worktree", "add", "-q", other); err != nil {
		t.Fatal(err)
	}
	b := main.In(filepath.Join(main.Dir, "fix"))
	gitDir := filepath.Join(repo, ".git")
	before, err := Tree(gitDir)
	if err != nil {
		t.Fatal(err)
	}
	script := `
git status --porcelain; echo new >new; git add new && git -c user.name=a -c user.email=a@example.com commit -q -m inside; echo commit $?
ls ` + repo + ` ` + other + ` 2>&1; cat ` + repo + `/secret 2>&1
for p in hooks/x worktrees/x worktrees/other/x worktrees/other/HEAD worktrees/fix/gitdir worktrees/fix/commondir worktrees/fix/config.worktree config commondir info/attributes; do
	echo evil 2>/dev/null >` + gitDir + `/$p && echo PLANTED $p
done
mv .git x 2>/dev/null && echo MOVED; echo x 2>/dev/null >.git && echo PLANTED .git
git branch inside; echo branch $?; git config a.b c 2>&1; true`
	out, errOut := b.ok(t, net("--", "sh", "-c", script)...)
	if !mirrored {
		if !strings.Contains(errOut, "the git directory of this worktree is not mounted: its path ") || strings.Contains(out, "PLANTED") || strings.Contains(out, "MOVED") {
			t.Errorf("%s%s", out, errOut)
		}
		return
	}
	for _, want := range []string{"commit 0\n", "branch 0\n", "could not write config file"} {
		if !strings.Contains(out, want) {
			t.Errorf("missing: %q", want)
		}
	}
	for _, not := range []string{"PLANTED", "MOVED", "of the main checkout", "main:\nlib", "probe"} {
		if strings.Contains(out, not) {
			t.Errorf("there is %q", not)
		}
	}
	if t.Failed() {
		t.Logf("%s%s", out, errOut)
	}
	if out, err := Git(repo, "log", "-1", "--format=%s", "fix"); err != nil || out != "inside\n" {
		t.Errorf("the commit did not land: %q, %v", out, err)
	}
	if out, err := Git(fix, "status", "--porcelain"); err != nil || out != "" {
		t.Errorf("the worktree: %q, %v", out, err)
	}
	after, err := Tree(gitDir)
	if err != nil {
		t.Fatal(err)
	}
	safe := []string{"hooks", "config", "config.worktree", "commondir", "info", "modules", "worktrees/other", "worktrees/fix/gitdir", "worktrees/fix/commondir", "worktrees/fix/config.worktree"}
	for _, d := range Differences(Below(before, safe), Below(after, safe)) {
		t.Error(d)
	}

	// The positive control has shown that it is mounted. Now a .git file that an
	// agent might have left: it leads to what is not this worktree's.
	victim := filepath.Join(gitDir, "worktrees", "other")
	for name, c := range map[string]struct{ dotGit, say string }{
		"another's":   {"gitdir: " + victim + "\n", "it is that of another worktree"},
		"a directory": {"gitdir: " + main.Dir + "\n", "it is not a worktree's"},
		"a submodule": {"gitdir: " + filepath.Join(gitDir, "modules/lib/foo") + "\n", "it is a submodule's"},
		"nothing":     {"gitdir: /nonexistent\n", "it can't be found"},
		"nonsense":    {"x\x1b[2J", "is a file that git can't read"},
	} {
		forged := main.In(filepath.Join(main.Dir, "forged-"+strings.ReplaceAll(name, " ", "-")))
		if err := os.Mkdir(forged.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		forged.put(t, ".git", c.dotGit)
		out, errOut := forged.ok(t, net("--", "sh", "-c", "ls "+gitDir+" 2>&1; true")...)
		if !strings.Contains(errOut, c.say) || strings.Contains(out, "HEAD") || strings.Contains(errOut, "\x1b") {
			t.Errorf("%s: %s%s", name, out, errOut)
		}
	}
}

// Through: what a protected path leads to that is a link can't be written, and links
// in protected directories are no way around. What was shipped as a link in the
// project can still be replaced, and that is told.
func (s Suite) Through(t *testing.T) {
	b := s.New(t)
	if err := Fresh(b.Dir); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cfg/envrc": "mine\n", "cfg/vscode/x": "{}", "githooks/x": "", "real/x": "", "ci/check": "", "free/x": ""} {
		b.put(t, name, text)
	}
	if err := os.RemoveAll(filepath.Join(b.Dir, ".git/hooks")); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{".git/hooks": "../githooks", ".envrc": "cfg/link", "cfg/link": filepath.Join(b.Dir, "cfg/envrc"), ".vscode": "cfg/vscode", ".mcp.json": "cfg/none",
		"hl": "real", "githooks/pre-push": "../ci/check", "control": "free"} {
		if err := os.Symlink(to, filepath.Join(b.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Git(b.Dir, "config", "core.hooksPath", "hl"); err != nil {
		t.Fatal(err)
	}
	before := b.tree(t)
	const script = `
for p in .git/hooks/pre-commit githooks/pre-commit .git/hooks/pre-push ci/check .envrc cfg/envrc .vscode/tasks.json cfg/vscode/tasks.json .mcp.json cfg/none hl/pre-commit real/pre-commit; do
	{ echo evil >>$p; } 2>/dev/null
done
for d in cfg githooks ci real cfg/vscode; do mv -T $d moved 2>/dev/null; done; rm -rf moved
echo x >control/planted; true`
	_, errOut := b.ok(t, net("--", "sh", "-c", script)...)
	if err := os.Remove(filepath.Join(b.Dir, "free/planted")); err != nil {
		t.Errorf("the positive control: %v", err)
	}
	for _, d := range Differences(before, b.tree(t)) {
		t.Error(d)
	}
	if strings.Contains(errOut, "changed in this run") {
		t.Errorf("told without a change: %s", errOut)
	}
	// Given free, what the link leads to is free with it; and no other is.
	_, errOut = b.ok(t, net("--unprotect", ".envrc", "--", "sh", "-c", script)...)
	if text, err := os.ReadFile(filepath.Join(b.Dir, "cfg/envrc")); err != nil || !strings.Contains(string(text), "evil") {
		t.Errorf("--unprotect .envrc: %q, %v, %s", text, err, errOut)
	}
	if b.exists("githooks/pre-commit") || b.exists("cfg/vscode/tasks.json") {
		t.Errorf("--unprotect .envrc gave others free")
	}
	_, errOut = b.ok(t, net("--", "sh", "-c", "rm .vscode; ln -s free .vscode; rm cfg/link; ln -s ../free/x cfg/link")...)
	for _, want := range []string{"NOT HELD: .vscode is a symbolic link", "NOT HELD: cfg/link is a symbolic link", "  .vscode (could not be held)", "  cfg/link (could not be held)"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("not told: %s\n%s", want, errOut)
		}
	}
}

// Links: a protected path that is a link can't be held; it is said before, and told
// when it was replaced. None is followed by the host.
func (s Suite) Links(t *testing.T) {
	b := s.New(t)
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(b.Dir, ".claude")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("elsewhere", filepath.Join(b.Dir, ".vscode")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(b.Dir, ".envrc"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errOut := b.ok(t, net("--", "sh", "-c", "rm .claude; mkdir .claude; echo x >.claude/settings.json")...)
	for _, want := range []string{"NOT HELD: .claude is a symbolic link", "NOT HELD: .vscode is a symbolic link", "NOT HELD: .envrc is a special file", "  .claude (could not be held)", "  .claude/settings.json (agents obey it)"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("not told: %s\n%s", want, errOut)
		}
	}
	if strings.Contains(errOut, "  .vscode (") {
		t.Errorf("told without a change: %s", errOut)
	}
	// A report is not written where a link of the command's leads.
	b.ok(t, net("--", "sh", "-c", "ln -s "+outside+" out; mkdir dir")...)
	if code, _, errOut := b.Run(net("--report", "out/report.json", "--", "true")...); code != 125 {
		t.Errorf("%d, %s", code, errOut)
	}
	b.ok(t, net("--report", "dir/report.json", "--", "true")...)
	if !b.exists("dir/report.json") {
		t.Error("the positive control: there is no report")
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) > 0 {
		t.Errorf("a link was followed: %v, %v", names, err)
	}
}
