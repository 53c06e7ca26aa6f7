//go:build e2e

package jail

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Pi's configuration in a jail, as in a container (tests/e2e has all of it).
func TestPiConfiguration(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	home := b.ofUser(t, ".local/bin")
	agent := filepath.Join(home, ".pi/agent")
	write(t, filepath.Join(home, ".local/bin/pi"), "#!/bin/sh\n"+tool, 0o755)
	write(t, filepath.Join(agent, "models.json"), `{"providers":{"acme":{"apiKey":"CANARY-`+b.Token+`-12345","headers":{"X-Key":"CANARY-`+b.Token+`"}}}}`, 0o600)
	write(t, filepath.Join(agent, "settings.json"), `{"theme":"light","defaultModel":"m"}`, 0o600)
	if r := b.Run("--net", "none", "pi"); r.Code != 125 || !strings.Contains(r.Err, "AI_API_TOKEN in a sandbox, and it is unset or empty") {
		t.Errorf("%s", r)
	}
	b.Env = append(b.Env, "AI_API_TOKEN=token-"+b.Token)
	look := []string{"--net", "none", "pi", "run", "sh", "-c", "cd ~/.pi/agent && cat models.json settings.json && stat -c %a%n *.json"}
	r := b.OK(look...)
	if !strings.Contains(r.Out, `"apiKey": "$AI_API_TOKEN"`) || !strings.Contains(r.Out, `"theme": "light"`) || strings.Contains(r.Out+r.Err, "CANARY") || !strings.Contains(r.Out, "600models.json\n600settings.json\n") {
		t.Errorf("%s", r)
	}
	b.OK("--net", "none", "pi", "run", "sh", "-c", `cd ~/.pi/agent && sed -i s/light/dark/ settings.json && echo '{}' >models.json`)
	write(t, filepath.Join(agent, "settings.json"), `{"theme":"light","defaultModel":"n"}`, 0o600)
	r = b.OK(look...)
	if !strings.Contains(r.Out, `"theme": "dark"`) || !strings.Contains(r.Out, `"defaultModel": "n"`) || strings.Contains(r.Out, "acme") || !strings.Contains(r.Err, "models.json was changed in this sandbox") {
		t.Errorf("%s", r)
	}
	b.OK("--net", "none", "pi", "run", "sh", "-c", `rm -r ~/.pi/agent/models.json`)
	b.CheckPlanted(t, b.OK("--net", "none", "pi", "run", "cat", "/home/sandbox/.pi/agent/models.json").Out, "--net", "none", "pi", "run")
	b.CheckExtras(t, home, "--net", "none", "pi", "run")
	// A link below the user's home may be an agent's.
	if err := os.Rename(filepath.Join(agent, "settings.json"), filepath.Join(home, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(home, "elsewhere"), filepath.Join(agent, "settings.json")); err != nil {
		t.Fatal(err)
	}
	if r := b.Run(look...); r.Code != 125 || !strings.Contains(r.Err, "is a symbolic link") {
		t.Errorf("%s", r)
	}
	// With the host's own directory there is nothing to bring in.
	if r := b.OK(append([]string{"--bind-harness-home"}, "--net", "none", "pi", "run", "cat", "/home/sandbox/.pi/agent/models.json")...); !strings.Contains(r.Out, "CANARY-"+b.Token+"-12345") || !strings.Contains(r.Err, "so nothing is brought in") {
		t.Errorf("%s", r)
	}
}
