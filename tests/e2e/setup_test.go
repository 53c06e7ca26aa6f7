//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/tests/e2e/drive"
	"ai-sandbox/tests/e2e/internet"
)

// What a setup script gets moves: a package of npm's, then a file. A check says it, and
// leaves nothing; an update takes it; and what gets the same again changes nothing.
func TestSetupIsUpdated(t *testing.T) {
	t.Parallel()
	p := newNPMBox(t)
	p.publishPi(oldHarness)
	p.found("pi")
	far := filepath.Join(w.home, "e2e", "files", "got-"+p.Token)
	setup := filepath.Join(w.home, "e2e", "setup-"+p.Token)
	for _, path := range []string{far, setup} {
		t.Cleanup(func() { removeAll(t, path) })
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// What differs each time and is of no use to a sandbox is in it, too: npm's logs.
	write(setup, `#!/bin/bash
set -eo pipefail
npm config set prefix /opt/npm
npm install -g --no-audit --no-fund tool
date +%s.%N >/root/when
exec 3<>/dev/tcp/`+internet.Allowed+`/80
printf 'GET /files/got-`+p.Token+` HTTP/1.0\r\n\r\n' >&3
grep ^got- <&3 >/opt/got
`)
	write(far, "got-one\n")
	p.Env = append(p.Env, "AISB_SETUP="+setup)
	p.npm.publish("part", "5.0.0", nil, nil)
	tool := func(version string) {
		p.npm.publish("tool", version, map[string]any{"dependencies": map[string]any{"part": "5.0.0"}, "bin": map[string]any{"tool": "cli.js"}},
			map[string]string{"cli.js": "#!/usr/bin/env node\nconsole.log('tool " + version + "')\n"})
	}
	tool("1.0.0")
	first := p.OK("build").Out
	inside := func(version, got string) {
		t.Helper()
		r := p.OK("--net", "none", "--", "sh", "-c", "/opt/npm/bin/tool; cat /opt/got; grep -E '^npm (tool|part|npm|left) ' /etc/aisb/manifest.txt; grep -oE 'pkg:npm/(tool|part)@.*\"' /etc/aisb/sbom.cdx.json")
		has(t, r, 0, "tool "+version+"\n"+got+"\nnpm left "+oldHarness+"\nnpm npm 10.9.4\nnpm part 5.0.0\nnpm tool "+version+"\n", `pkg:npm/part@5.0.0"`, `pkg:npm/tool@`+version+`"`)
	}
	inside("1.0.0", "got-one")
	images := func() string {
		return drive.Output(t, "podman", "images", "-q", "--no-trunc", "--filter", "label=aisb.base-ref="+p.ref)
	}
	// layers are all that builds with this cache have made.
	end := "-" + digest.FromString(filepath.Join(p.cache, "ai-sandbox")).Encoded()[:12]
	layers := func() []string {
		var out []string
		for line := range strings.Lines(drive.Output(t, "podman", "images", "-a", "--no-trunc", "--format", `{{.ID}} {{index .Labels "aisb.build"}}`)) {
			if line = strings.TrimSpace(line); strings.HasSuffix(line, end) {
				out = append(out, line)
			}
		}
		slices.Sort(out)
		return out
	}
	if len(layers()) < 3 {
		t.Fatalf("the build has left the layers %q", layers())
	}
	type change struct{ Kind, Image, Name, From, To string }
	changes := func(code int, args ...string) []change {
		t.Helper()
		r := p.Run(append(args, "--json")...)
		var out struct{ Changes []change }
		if err := json.Unmarshal([]byte(r.Out), &out); err != nil || r.Code != code {
			t.Fatalf("%q: want exit code %d: %v: %s", args, code, err, r)
		}
		return out.Changes
	}
	// moved is what a check says, and leaves as it is, and what an update then brings.
	moved := func(judge func([]change) bool) {
		t.Helper()
		before := images()
		said := changes(1, "update", "--check")
		if !judge(said) {
			t.Errorf("a check says %+v", said)
		}
		if now := images(); now != before {
			t.Errorf("a check leaves %q of %q", now, before)
		}
		if brought := changes(0, "update"); !slices.Equal(brought, said) {
			t.Errorf("an update says %+v, and a check said %+v", brought, said)
		}
	}
	has(t, p.Run("update", "--check"), 0, "nothing is newer than what is there", "# the setup script was run to see what it brings today")

	tool("2.0.0")
	moved(func(c []change) bool { return slices.Equal(c, []change{{"npm", "sandbox", "tool", "1.0.0", "2.0.0"}}) })
	inside("2.0.0", "got-one")
	write(far, "got-two\n")
	moved(func(c []change) bool {
		return len(c) == 1 && c[0].Kind == "file" && c[0].Name == "/opt/got" && strings.HasPrefix(c[0].To, "-rw-r--r-- 0:0 sha256:") && c[0].From != c[0].To
	})
	inside("2.0.0", "got-two")
	is := p.OK("build").Out
	if is == first {
		t.Errorf("it is still %s", is)
	}
	has(t, p.Run("update"), 0, "nothing is newer")
	if again := p.OK("build").Out; again != is {
		t.Errorf("an update without changes leaves %s", again)
	}
	// A script that can't be run today is no "nothing would change".
	removeAll(t, far)
	before, made := images(), layers()
	has(t, p.Run("update", "--check"), 2, "run the setup script to see what it brings", "setup script")
	has(t, p.Run("update"), 1, "setup script")
	if now := images(); now != before {
		t.Errorf("a script that fails leaves %q of %q", now, before)
	}
	if now := layers(); !slices.Equal(now, made) {
		t.Errorf("a script that fails leaves the layers %q of %q", now, made)
	}
	inside("2.0.0", "got-two")
}
