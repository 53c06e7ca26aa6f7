//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The guide is where the agent is told that it is, says what this run may, and can't
// be changed; each agent is led there by its own instructions.
func TestGuide(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.CheckGuide(t)
	b.OK("--net", "none", "pi", "--version")
	if r := b.OK("--net", "none", "--", "cat", "/home/sandbox/.pi/agent/AGENTS.md"); !strings.Contains(r.Out, "/etc/aisb/GUIDE.md") {
		t.Errorf("%s", r)
	}
}

// A login is brought in when it is asked for, alone and read-only, and a skill, a
// prompt and an extension of the user's where the agent looks for them.
func TestCredentialsAndExtras(t *testing.T) {
	u := newPiUser(t)
	u.has("auth.json", `{"x":{"type":"api_key","key":"LOGIN-`+u.Token+`"}}`)
	u.has("sessions/other.jsonl", "OTHER-"+u.Token)
	own := t.TempDir()
	for name, text := range map[string]string{"sk/SKILL.md": "---\nname: sk\ndescription: test skill\n---\nSKILL-" + u.Token, "ask.md": "PROMPT-" + u.Token, "ext/index.ts": "export default function () {}", "odd/x": "x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(own, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	look := append(u.fakePi(), "sh", "-c", "cd ~/.pi/agent; cat auth.json skills/sk/SKILL.md prompts/ask.md extensions/ext/index.ts; echo x >>auth.json; echo x >>skills/sk/SKILL.md; grep -rl OTHER-"+u.Token+" ~ /run; true")
	if r := u.OK(look...); strings.Contains(r.Out, u.Token) {
		t.Errorf("without being asked: %s", r)
	}
	args := []string{"--credentials", "host", "--harness-extra", own + "/sk", "--harness-extra", own + "/ask.md", "--harness-extra", own + "/ext"}
	r := u.OK(append(args, look...)...)
	for _, want := range []string{"LOGIN-", "SKILL-", "PROMPT-"} {
		if !strings.Contains(r.Out, want+u.Token) {
			t.Errorf("%s is not there: %s", want, r)
		}
	}
	if !strings.Contains(r.Out, "export default") || strings.Contains(r.Out, "other.jsonl") || strings.Count(r.Err, "Read-only file system") != 2 {
		t.Errorf("%s", r)
	}
	p := u.OK(append(append([]string{"--print-policy"}, args...), "pi")...)
	for _, want := range []string{"auth.json", own + "/sk", ".pi/agent/skills/sk"} {
		if !strings.Contains(p.Out, want) {
			t.Errorf("%s is not printed: %s", want, p)
		}
	}
	if r := u.OK(look...); strings.Contains(r.Out, "LOGIN-") {
		t.Errorf("the login stayed: %s", r)
	}
	for _, bad := range [][]string{{"--harness-extra", own + "/odd", "pi"}, {"--harness-extra", own + "/sk", "--", "true"}, {"--harness-extra", own + "/none", "pi"}} {
		if r := u.Run(append([]string{"--net", "none"}, bad...)...); r.Code != 125 || !strings.Contains(r.Err, "harness_extra ") {
			t.Errorf("%q: %s", bad, r)
		}
	}
	u.CheckExtras(t, filepath.Dir(filepath.Dir(u.agent)), u.fakePi()...)
	// The real pi loads an extension that is shown to it.
	u.has("models.json", keylessModels)
	u.Env = []string{"AI_API_TOKEN=token-" + u.Token + "-0123"}
	if r := u.Run("--net", "none", "--ephemeral-home", "--env", "PI_OFFLINE=1", "--harness-extra", own+"/ext", "pi", "--list-models"); r.Code != 0 {
		t.Errorf("%s", r)
	}
}
