//go:build e2e

package jail

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ai-sandbox/tests/e2e/drive"
)

// home is the project's home on the host.
func (b *box) home(t *testing.T) string {
	t.Helper()
	for _, m := range b.printed("--net", "none", "--", "true").Mounts {
		if m.Target == "/home/sandbox" {
			return m.Source
		}
	}
	t.Fatal("the policy has no home")
	return ""
}

// The home stays, is the project's alone, and an ephemeral one is gone afterwards.
func TestHomes(t *testing.T) {
	t.Parallel()
	b, other := newBox(t), newBox(t)
	b.OK("--net", "none", "--", "sh", "-c", "echo kept >$HOME/kept; chmod 600 $HOME/kept")
	if r := b.OK("--net", "none", "--", "cat", "/home/sandbox/kept"); r.Out != "kept\n" {
		t.Errorf("the home was not kept: %s", r)
	}
	if r := other.Run("--net", "none", "--", "cat", "/home/sandbox/kept"); r.Code != 1 {
		t.Errorf("another project's home: %s", r)
	}
	if r := b.Run("--net", "none", "--ephemeral-home", "--", "sh", "-c", "echo e >$HOME/e; cat /home/sandbox/kept"); r.Code != 1 {
		t.Errorf("an ephemeral home is not empty: %s", r)
	}
	if r := b.Run("--net", "none", "--", "cat", "/home/sandbox/e"); r.Code != 1 {
		t.Errorf("an ephemeral home was kept: %s", r)
	}
	home := b.home(t)
	if data, err := os.ReadFile(filepath.Join(home, "kept")); err != nil || string(data) != "kept\n" {
		t.Errorf("%v, %q", err, data)
	}
	if info, err := os.Stat(home); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Dir(home)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}

// "clean --volumes" takes a home away, however its agent has left it, and
// follows nothing in it; "clean" alone does not.
func TestCleanHomes(t *testing.T) {
	b := newBox(t)
	keep := write(t, filepath.Join(w.own, "outside-"+b.Token, "file"), "mine", 0o600)
	b.OK("--net", "none", "--", "sh", "-c", "cd; mkdir -p a/b; touch a/b/f; ln -s "+filepath.Dir(keep)+" out; ln -s "+filepath.Dir(keep)+" a/b/out; mkfifo p; chmod 000 a/b; chmod 500 a; chmod 555 .")
	home := b.home(t)
	b.OK("clean")
	if _, err := os.Stat(home); err != nil {
		t.Errorf("clean took the home: %v", err)
	}
	b.OK("clean", "--volumes")
	if _, err := os.Lstat(home); err == nil {
		t.Error("clean --volumes left the home")
	}
	if data, err := os.ReadFile(keep); err != nil || string(data) != "mine" {
		t.Errorf("something outside of the home was removed: %v", err)
	}
	b.OK("--net", "none", "--", "test", "!", "-e", "/home/sandbox/a")
}

// --fs ro: the project can be read and nothing in it written.
func TestReadOnlyProject(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	write(t, filepath.Join(b.Dir, "file"), "text\n", 0o644)
	script := "cat file; echo x >file && echo WROTE; touch new && echo WROTE; rm file && echo WROTE; mkdir d && echo WROTE; chmod 600 file && echo WROTE; mv file g && echo WROTE; mount -o remount,rw . && echo WROTE; true"
	if r := b.OK("--fs", "ro", "--net", "none", "--", "sh", "-c", script); r.Out != "text\n" {
		t.Errorf("%s", r)
	}
	if data, err := os.ReadFile(filepath.Join(b.Dir, "file")); err != nil || string(data) != "text\n" {
		t.Errorf("%v, %q", err, data)
	}
	// The positive control: the same script writes without the flag.
	if r := b.OK("--net", "none", "--", "sh", "-c", script); strings.Count(r.Out, "WROTE") < 4 {
		t.Errorf("the positive control failed: %s", r)
	}
	if r := b.OK("--fs", "ro", "--print-policy", "--", "true"); !regexp.MustCompile(`(?m)^  ro bind +\S+\s+(<-\s+\S+\s+)?\(project`).MatchString(r.Out) {
		t.Errorf("%s", r)
	}
}

// A project is seen at its own path, or where that would hide something at
// /project, and the printout says so; a link leads to the real one.
func TestProjectPath(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p := b.printed("--", "true")
	r := b.OK("--net", "none", "--", "sh", "-c", "pwd -P; echo hi >here")
	if r.Out != p.Workdir+"\n" || b.File(t, "here") != "hi" {
		t.Errorf("want %s: %s", p.Workdir, r)
	}
	if w.testHost && p.Workdir != b.Dir {
		t.Errorf("the project %s is mounted at %s", b.Dir, p.Workdir)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(b.Dir, link); err != nil {
		t.Fatal(err)
	}
	real := b.Dir
	b.Dir = link
	if r := b.OK("--net", "none", "--", "sh", "-c", "pwd -P; cat here"); r.Out != p.Workdir+"\nhi\n" {
		t.Errorf("through a link: %s", r)
	}
	b.Dir = real
	tmp := newBox(t)
	var err error
	if tmp.Dir, err = os.MkdirTemp("/tmp", "aisb-jail"); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp.Dir)
	r = tmp.OK("--net", "none", "--", "sh", "-c", "pwd -P; ls /tmp")
	if r.Out != "/project\n" || !strings.Contains(r.Err, "/project") {
		t.Errorf("a project below /tmp: %s", r)
	}
	odd := newBox(t)
	odd.Dir = filepath.Join(odd.Dir, "a b;c,d\\e'f\"g$h\nü")
	if err := os.Mkdir(odd.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if r := odd.OK("--net", "none", "--", "sh", "-c", "echo hi >here"); odd.File(t, "here") != "hi" {
		t.Errorf("%s", r)
	}
}

// A project that is another directory by the time it is mounted: nothing runs.
// bubblewrap is the last moment before, so one of our own swaps it.
func TestSwappedProject(t *testing.T) {
	t.Parallel()
	for name, swap := range map[string]string{
		"directory": `mv "$P" "$P.old" && mkdir "$P"`,
		"symlink":   `mv "$P" "$P.old" && ln -s "$V" "$P"`,
		"parent":    `mv "${P%/*}" "${P%/*}.old" && mkdir -p "$V/${P##*/}" && ln -s "$V" "${P%/*}"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outer := newBox(t)
			victim := filepath.Join(outer.Dir, "victim")
			write(t, filepath.Join(victim, "secret"), "CANARY", 0o600)
			b := newBox(t)
			b.Dir = filepath.Join(outer.Dir, "parent", "project")
			if err := os.MkdirAll(b.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			real := strings.TrimSpace(drive.Output(t, "sh", "-c", "command -v bwrap"))
			fake := t.TempDir()
			flag := filepath.Join(fake, "swap")
			write(t, filepath.Join(fake, "bwrap"), "#!/bin/bash\nP='"+b.Dir+"' V='"+victim+"'\ncase \"$*\" in *session*) if test -e '"+flag+"'; then "+swap+"; fi;; esac\nexec -a \"$0\" "+real+" \"$@\"\n", 0o755)
			b.Env = []string{"PATH=" + fake + ":" + os.Getenv("PATH")}
			run := func() drive.Result {
				r := b.Run("--net", "none", "--", "sh", "-c", "echo ran; cat secret; echo x >ran")
				return r
			}
			// The positive control: the same bubblewrap, without the swap.
			r := run()
			if r.Code != 0 || r.Out != "ran\n" {
				t.Fatalf("the positive control failed: %s", r)
			}
			write(t, flag, "", 0o600)
			r = run()
			if r.Code != 125 && r.Code != 77 || strings.Contains(r.Out, "ran") || strings.Contains(r.Out, "CANARY") {
				t.Errorf("it ran in another directory: %s", r)
			}
			if _, err := os.Stat(filepath.Join(victim, "ran")); err == nil {
				t.Error("it wrote into another directory")
			}
		})
	}
}

// Links that an earlier run planted in its home or its project lead no mount and
// no seed out of them.
func TestPlantedLinks(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(w.own, "planted")
	write(t, filepath.Join(outside, "keep"), "mine", 0o600)
	before := drive.Output(t, "find", outside)
	for _, dir := range []string{".claude", ".claude.json", ".codex", ".config", ".cache", ".local", ".bashrc", ".profile", ".gitconfig", ".npmrc", ".pi", ".kiro"} {
		for _, to := range []string{outside, "/oldroot" + outside, "../../../.." + outside, "/etc"} {
			b := newBox(t)
			b.Env = []string{"PATH=" + fakeTool(t, "claude") + ":" + os.Getenv("PATH")}
			b.OK("--net", "none", "--", "sh", "-c", "rm -rf ~/"+dir+"; ln -s "+to+" ~/"+dir)
			r := b.Run("--net", "none", "claude", "--version")
			if r.Code != 0 && !strings.Contains(r.Err, "ai-sandbox: error: ") {
				t.Errorf("%s -> %s: %s", dir, to, r)
			}
		}
	}
	if after := drive.Output(t, "find", outside); after != before {
		t.Errorf("something was made outside:\n%s", after)
	}
}

// fakeTool is a directory with a program that says how it was called.
func fakeTool(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, name), "#!/bin/sh\necho \"called: $*\"\n", 0o755)
	return dir
}

// What a run leaves lends nobody the caller's identity: no file of it is setuid.
func TestNoSetuidFiles(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK("--net", "none", "--", "sh", "-c", `cp /usr/bin/id a; chmod 4755 a; cp /usr/bin/id b; chmod u+s b; install -m 4755 /usr/bin/id c
python3 -c '
import os
for how in (lambda: os.chmod("d", 0o4755), lambda: os.fchmod(os.open("d", os.O_RDWR), 0o4755), lambda: os.open("e", os.O_CREAT | os.O_WRONLY, 0o4755), lambda: os.mknod("f", 0o104755)):
    try: open("d", "a").close(); how()
    except OSError as e: print(e)
'
cp /usr/bin/id g && chmod 755 g && ./g -u`)
	if !strings.HasSuffix(r.Out, "1000\n") {
		t.Errorf("the positive control failed: an honest mode is refused: %s", r)
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		if info, err := os.Lstat(filepath.Join(b.Dir, name)); err == nil && info.Mode()&os.ModeSetuid != 0 {
			t.Errorf("%s is %v on the host", name, info.Mode())
		}
	}
}
