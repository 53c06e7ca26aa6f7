//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ai-sandbox/image"
	"ai-sandbox/tests/e2e/agenttest"
	"ai-sandbox/tests/e2e/drive"
)

const setupText = `#!/bin/bash
set -e
[[ -n $BASH_VERSION ]]
echo "uid $(id -u) in $PWD" >>/opt/setup-ran
touch /home/sandbox/left /project/left /run/left /tmp/left
cp /usr/bin/true /usr/local/bin/raised
chmod 4755 /usr/local/bin/raised
npm install -g --no-audit --no-fund is-odd@3.0.1
npm install --prefix /opt/tool --no-audit --no-fund left-pad@1.3.0
# A package that is removed, and whose configuration stays.
mkdir -p /gone/DEBIAN /gone/etc
printf 'Package: aisb-gone\nVersion: 1.0\nArchitecture: all\nMaintainer: tests <tests@example.com>\nDescription: of the tests\n' >/gone/DEBIAN/control
echo /etc/gone.conf | tee /gone/DEBIAN/conffiles >/gone/etc/gone.conf
dpkg-deb -b /gone /gone.deb
dpkg -i /gone.deb
dpkg -r aisb-gone
rm -r /gone /gone.deb
`

// newSetBox makes a box whose images are the test's own, and whose layers are everybody's:
// the base has another name in its recipes, and the same one to podman. own is for what
// else the test needs outside of the project.
func newSetBox(t *testing.T) (b *drive.Box, own string) {
	t.Helper()
	b = newBox(t)
	base := regexp.MustCompile(`"base_digest": "(sha256:[0-9a-f]{64})"`).FindStringSubmatch(b.OK("--print-policy=json", "--", "true").Out)
	if base == nil {
		t.Fatal("the tests' base has no digest")
	}
	from := setting(t, "AISB_BASE")
	from = from[:strings.LastIndex(from, ":")] + ":" + b.Token + "@" + base[1]
	own = filepath.Join(w.home, "e2e", "sets-"+b.Token)
	b.Env = []string{"XDG_STATE_HOME=" + filepath.Join(own, "state"), "AISB_BASE=" + from}
	t.Cleanup(func() {
		if ids := strings.Fields(drive.Output(t, "podman", "images", "-q", "--no-trunc", "--filter", "label=aisb.base-ref="+from)); len(ids) > 0 {
			drive.Output(t, "podman", append([]string{"rmi", "-f"}, slices.Compact(ids)...)...)
		}
		removeAll(t, own)
	})
	return b, own
}

// The agents that are in no other test's image, each by its own name in a sandbox. The
// first run asks nothing, with a terminal and without.
func TestOtherAgents(t *testing.T) {
	t.Parallel()
	b, _ := newSetBox(t)
	var names, list []string
	for _, row := range agenttest.Table(t) {
		if !slices.Contains([]string{"pi", "claude", "codex"}, row.Name) {
			names, list = append(names, row.Name), append(list, row.Name+" "+row.Version)
		}
	}
	b.Env = append(b.Env, "AISB_HARNESS_PACKAGES="+strings.Join(names, ","))
	b.OK("build")
	has(t, b.OK("--print-policy", names[0]), 0, "agents     "+strings.Join(list, ", ")+"\n")
	agenttest.Flags(t, b, names...)
	for _, a := range []agenttest.Agent{agenttest.Gemini, agenttest.OpenCode} {
		box := func(t *testing.T) *drive.Box {
			one := newBox(t)
			one.Env = slices.Clone(b.Env)
			return one
		}
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			agenttest.Task(t, box(t), a)
			agenttest.Sessions(t, box(t), a)
			agenttest.Terminal(t, box(t), a)
			if a.Name == "gemini" { // and its first run by the other key
				a.Key, a.Resume = "GOOGLE_API_KEY", nil
				a.Flags = func(at string) []string { return []string{"--env", "GOOGLE_VERTEX_BASE_URL=http://" + at} }
				agenttest.Sessions(t, box(t), a)
			}
		})
	}
	gemini, opencode := agenttest.Of(t, "gemini").Version, agenttest.Of(t, "opencode").Version
	has(t, b.OK("--net", "none", "--", "sh", "-c", "command -v pi claude codex || echo no more; cat /etc/aisb/manifest.txt"), 0, "no more\n",
		"npm @google/gemini-cli "+gemini+"\n", "npm opencode-ai "+opencode+"\n", "npm opencode-linux-x64-baseline "+opencode+"\n")
}

// A set of three agents, a package and a script of a trusted project; another set
// beside it, of flags; then both are listed, and what nothing uses is removed.
func TestToolchain(t *testing.T) {
	t.Parallel()
	b, own := newSetBox(t)
	state := filepath.Join(own, "state")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(b.Dir, ".ai-sandbox/config"), "images = pi,claude,codex\napt = hello\nsetup = tools/setup.sh\n")
	write(filepath.Join(b.Dir, "tools/setup.sh"), setupText)

	// Untrusted, nothing is built of it.
	has(t, b.Run("build"), 1, "is not trusted", "+ apt = hello  # widens", "+ | touch /home/sandbox/left")
	b.OK("trust", "--yes")
	// A gate stands on its own image alone.
	alone := "a" + b.Token
	t.Cleanup(func() { b.Run("gate", "down", alone) })
	b.OK("gate", "up", alone, "--allow", b.Host("ok.test"))
	if records, err := filepath.Glob(filepath.Join(state, "ai-sandbox/images", "*.json")); err != nil || len(records) != 1 || !strings.HasPrefix(filepath.Base(records[0]), "gate-") {
		t.Errorf("a gate builds %q, %v", records, err)
	}
	b.OK("gate", "down", alone)
	full := b.OK("build").Out
	has(t, b.OK("--print-policy", "claude"), 0, "agents     pi "+agenttest.Of(t, "pi").Version+", claude "+agenttest.Of(t, "claude").Version+", codex "+agenttest.Of(t, "codex").Version+"\n",
		"apt        hello\n", "tools/setup.sh", "sha256:"+image.SetupSHA256([]byte(setupText)))
	// Each agent by its own name, in a sandbox.
	for _, name := range []string{"claude", "codex"} {
		has(t, b.OK("--net", "none", name, "--version"), 0, agenttest.Of(t, name).Version)
	}
	has(t, b.OK("--net", "none", "--", "sh", "-c", `pi --version; hello; cat /opt/setup-ran; sha256sum /etc/aisb/setup; stat -c 'mode %a' /usr/local/bin/raised; `+
		`echo left: $(ls -d ~/left /project/left /run/left /tmp/left 2>/dev/null); grep -c '^deb hello ' /etc/aisb/manifest.txt; `+
		`grep -E '^npm (@openai/codex|@anthropic-ai/claude-code|node-gyp) ' /etc/aisb/manifest.txt; grep -o 'pkg:npm/node-gyp@' /etc/aisb/sbom.cdx.json | head -n1; `+
		`echo npm: $(grep -cE '^npm (is-odd 3\.0\.1|is-number 6\.0\.0|left-pad 1\.3\.0)$' /etc/aisb/manifest.txt) of $(grep -cE '^npm (is-odd|is-number|left-pad) ' /etc/aisb/manifest.txt); `+
		`grep -oE 'pkg:npm/(is-odd|left-pad)@[0-9.]+' /etc/aisb/sbom.cdx.json | sort -u; `+
		`echo gone: $(dpkg-query -W -f '${db:Status-Status}' aisb-gone), named $(cat /etc/aisb/manifest.txt /etc/aisb/sbom.cdx.json | grep -c aisb-gone)`),
		0, agenttest.Of(t, "pi").Version, "Hello, world!", "uid 0 in /\n", image.SetupSHA256([]byte(setupText)), "mode 755\n", "left:\n1\n",
		"npm @openai/codex "+agenttest.Of(t, "codex").Version+"\n", "npm @anthropic-ai/claude-code "+agenttest.Of(t, "claude").Version+"\n",
		"npm node-gyp ", "pkg:npm/node-gyp@", // which npm has within itself
		"npm: 3 of 3\npkg:npm/is-odd@3.0.1\npkg:npm/left-pad@1.3.0\ngone: config-files, named 0\n") // what the script got, with what that needs
	version := regexp.MustCompile(`package      deb hello (\S+)\n`).FindStringSubmatch(b.OK("inspect", "--offline").Out)
	if version == nil {
		t.Fatal("the manifest has no hello")
	}
	// What npm installed by a lock file is found as it is, and nothing else is.
	npm := "grep '^npm ' /etc/aisb/manifest.txt | sort -u"
	// A byte more in the script, and no run obeys it.
	write(filepath.Join(b.Dir, "tools/setup.sh"), setupText+"touch /opt/evil\n")
	has(t, b.Run("--net", "none", "--", "true"), 125, "+ | touch /opt/evil", "is not what was trusted")
	write(filepath.Join(b.Dir, "tools/setup.sh"), setupText)

	// Side by side: another set, of flags alone, at the version that there is.
	mine := filepath.Join(own, "mine")
	write(mine, "echo mine >/opt/setup-ran\n")
	flags := []string{"--ignore-project-config", "--harness-packages", "pi", "--apt", "hello=" + version[1], "--setup", mine}
	small := b.OK(slices.Concat([]string{"build"}, flags)...).Out
	session := func(args ...string) []string { return slices.Concat(flags, []string{"--net", "none"}, args) }
	has(t, b.OK(session("--", "sh", "-c", "cat /opt/setup-ran; hello; apt-mark showhold; command -v claude codex || echo no more")...), 0, "mine\nHello, world!\nhello\nno more\n")
	if anew, is := b.OK(session("--", "sh", "-c", npm)...).Out, newBox(t).OK("--net", "none", "--", "sh", "-c", npm).Out; anew != is || is == "" {
		t.Errorf("with a script that installs nothing, the packages are %q, and not %q", anew, is)
	}
	has(t, b.Run(session("claude", "--version")...), 125, "podman's image has no claude; use --harness-packages pi,claude")
	has(t, b.OK("--net", "none", "--", "cat", "/opt/setup-ran"), 0, "uid 0 in /\n")

	// Another entrypoint makes the last layers anew, and none of these.
	hook := *b
	hook.Bin = filepath.Join(w.bin, "ai-sandbox-testhook")
	// By variables, which a named gate of it minds, too: it is made of the same images.
	hook.Env = append(slices.Clone(b.Env), "AISB_HARNESS_PACKAGES=pi", "AISB_APT=hello="+version[1], "AISB_SETUP="+mine)
	other := hook.OK("build", "--ignore-project-config").Out
	data, err := os.ReadFile(filepath.Join(state, "ai-sandbox/images", "sandbox-"+ref(t, other, 0)[len("localhost/ai-sandbox:"):]+".log"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "Using cache"); n < 10 {
		t.Errorf("only %d layers were there: %s", n, drive.Tail(string(data)))
	}
	for _, step := range madeAnew(lastTry(string(data))) {
		if !strings.Contains(step, "aisb-entrypoint") && !strings.Contains(step, "sbom.json") && !strings.HasPrefix(step, "LABEL ") {
			t.Errorf("another entrypoint makes a step anew: %.60s", step)
		}
	}

	// What uses what: a trusted project's file, a running session, a named gate.
	live := b.Start(t, session("--", "sh", "-c", "echo up >up; exec sleep 600")...)
	b.File(t, "up")
	gate := "g" + b.Token
	hook.OK("gate", "up", gate, "--allow", b.Host("ok.test"))
	t.Cleanup(func() { hook.Run("gate", "down", gate) })
	uses := func() map[string]string {
		t.Helper()
		var list struct {
			Images []struct {
				Ref    string
				Size   int64    `json:"size_bytes"`
				UsedBy []string `json:"used_by"`
				Here   bool
				Time   time.Time `json:"created"`
			}
		}
		if err := json.Unmarshal([]byte(b.OK("images", "--json").Out), &list); err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, i := range list.Images {
			if !i.Here {
				continue // other tests'
			}
			if i.Size < 10e6 || time.Since(i.Time) > 24*time.Hour {
				t.Errorf("%s has %d bytes, and is of %s", i.Ref, i.Size, i.Time)
			}
			out[i.Ref] = strings.Join(i.UsedBy, ", ")
		}
		return out
	}
	before := uses()
	for name, want := range map[string]string{
		ref(t, full, 0): "a configuration", ref(t, full, 1): "a configuration", ref(t, small, 0): "session ", ref(t, other, 0): "", ref(t, other, 1): "gate " + gate,
	} {
		if got, ok := before[name]; !ok || !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s is used by %q (%t), and not by %q", name, got, ok, want)
		}
	}
	has(t, b.OK("images"), 0, ref(t, full, 0), "claude "+agenttest.Of(t, "claude").Version, "apt hello", "used by a configuration", "not used; ai-sandbox clean --images removes it")
	there := func(name string) bool { return exec.Command("podman", "image", "exists", name).Run() == nil }
	clean := func(gone, stay []string) {
		t.Helper()
		r := b.OK("clean", "--images")
		for _, name := range gone {
			if there(name) || !strings.Contains(r.Out, "removed "+name) {
				t.Errorf("%s is still there: %s", name, r)
			}
		}
		for _, name := range stay {
			if !there(name) || strings.Contains(r.Out, name+" ") {
				t.Errorf("%s is gone: %s", name, r)
			}
		}
	}
	clean([]string{ref(t, other, 0)}, []string{ref(t, full, 0), ref(t, full, 1), ref(t, small, 0), ref(t, other, 1)})
	if err := live.Cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	live.Wait(30 * time.Second)
	hook.OK("gate", "down", gate)
	clean([]string{ref(t, small, 0), ref(t, other, 1)}, []string{ref(t, full, 0), ref(t, full, 1)})
	has(t, b.OK("--net", "none", "--", "hello"), 0, "Hello, world!")
	b.OK("trust", "--revoke")
	has(t, b.OK("clean", "--images", "--dry-run"), 0, "would remove "+ref(t, full, 0)+" ")
	clean([]string{ref(t, full, 0)}, []string{ref(t, full, 1)})
}

// ref is the n-th image that a build has named.
func ref(t *testing.T, built string, n int) string {
	t.Helper()
	all := regexp.MustCompile(`localhost/ai-sandbox[a-z-]*:[0-9a-f]{12}`).FindAllString(built, -1)
	if n >= len(all) {
		t.Fatalf("a build names %q", built)
	}
	return all[n]
}
