package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/policy"
)

// piStage has files of pi's, and tells what a run gives its home.
func piStage(t *testing.T, models, settings string) (s *stage, run func(args ...string) map[string]string) {
	t.Helper()
	s = newStage(t)
	s.piHas(models, settings)
	return s, func(args ...string) map[string]string {
		t.Helper()
		var got policy.Policy
		s.engine.DryRun = func(r RunRequest) ([]Section, error) { got = r.Policy; return nil, nil }
		if code := s.do(append([]string{"--dry-run", "--net", "none"}, append(args, "pi")...)...); code != 0 {
			t.Fatalf("%q: %d: %s", args, code, s.err.String())
		}
		out := map[string]string{}
		for _, f := range got.Home.Managed {
			out[f.Path] = string(f.Content)
			for _, k := range f.Fixed {
				out[k.Key] = k.Value
			}
		}
		return out
	}
}

// What inspect --pi shows is what a run has that is called with the same options.
func TestInspectPiIsTheRun(t *testing.T) {
	s, run := piStage(t, `{"providers":{"acme":{"apiKey":"k1234567890","headers":{"X-A":"$FROM_FILE","X-B":"$FROM_ENV","X-C":"$NOT"}}}}`,
		`{"defaultThinkingLevel":"low","modelThinkingLevels":{"acme/m":"low"},"theme":"dark"}`)
	s.env["AI_API_TOKEN"], s.env["FROM_ENV"], s.env["NOT"] = "token-0123456789", "a-value-of-it", "another-value"
	file := filepath.Join(s.env["HOME"], "secrets")
	s.write(file, "FROM_FILE=filed-0123456789\n")
	options := []string{"--env-file", file, "--env", "FROM_ENV", "--thinking", "high"}
	got := run(options...)
	if !strings.Contains(got[".pi/agent/models.json"], "$FROM_FILE") || !strings.Contains(got[".pi/agent/models.json"], "$FROM_ENV") || strings.Contains(got[".pi/agent/models.json"], "$NOT") {
		t.Errorf("%q", got)
	}
	if code := s.do(append([]string{"inspect", "--pi"}, options...)...); code != 0 {
		t.Fatalf("%d: %s", code, s.err.String())
	}
	out := s.out.String()
	for line := range strings.Lines(got[".pi/agent/models.json"]) {
		if !strings.Contains(out, "  "+line) {
			t.Errorf("no %q: %s", line, out)
		}
	}
	for _, want := range []string{"\n~ defaultThinkingLevel: high (", "\n- modelThinkingLevels (", `  "defaultThinkingLevel": "high"`, "\n- providers.acme.headers.X-C (", `"theme": "dark"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q: %s", want, out)
		}
	}
	if got["defaultThinkingLevel"] != "high" || strings.Contains(out, `"low"`) || strings.Contains(out, `"modelThinkingLevels"`) {
		t.Errorf("%q: %s", got, out)
	}
	// Left to this machine, it is what this machine has; and without settings there are those.
	if s.do("inspect", "--pi", "--thinking", "host"); !strings.Contains(s.out.String(), `"defaultThinkingLevel": "low"`) || strings.Contains(s.out.String(), "the setting thinking") {
		t.Error(s.out.String())
	}
	if err := os.Remove(filepath.Join(s.env["HOME"], ".pi/agent/settings.json")); err != nil {
		t.Fatal(err)
	}
	if s.do("inspect", "--pi"); !strings.Contains(s.out.String(), `"defaultThinkingLevel": "xhigh"`) {
		t.Error(s.out.String())
	}
	if s.do("inspect", "--pi", "--thinking", "host"); !strings.Contains(s.out.String(), "settings.json: there is none\n") {
		t.Error(s.out.String())
	}
}

// The token's value is looked for wherever it is passed from.
func TestPiTokenStandsNowhereElse(t *testing.T) {
	const value = "hunter2-pw9"
	s, run := piStage(t, `{"providers":{"acme":{"apiKey":"x","name":"my `+value+`"}}}`, `{}`)
	file := filepath.Join(s.env["HOME"], "secrets")
	s.write(file, "AI_API_TOKEN="+value+"\n")
	refused := func(args ...string) {
		t.Helper()
		for _, verb := range [][]string{append([]string{"--dry-run"}, append(args, "pi")...), append([]string{"inspect", "--pi"}, args...)} {
			if code := s.do(verb...); code == 0 || !strings.Contains(s.err.String(), "also stands in a name") || strings.Contains(s.out.String()+s.err.String(), value) {
				t.Errorf("%q: %d %s%s", verb, code, s.out.String(), s.err.String())
			}
		}
	}
	refused("--env-file", file)
	s.env["AI_API_TOKEN"] = value
	refused()
	refused("--env", "AI_API_TOKEN")
	// The control.
	s.env["AI_API_TOKEN"] = "another-0123"
	run()
	s.env["AI_API_TOKEN"] = value // passed is the file's
	s.write(file, "AI_API_TOKEN=another-0123\n")
	run("--env-file", file)
}

// What leads to the home stays out by either of its names.
func TestPiByEitherHome(t *testing.T) {
	s, run := piStage(t, `{}`, ``)
	linked := filepath.Join(t.TempDir(), "linked")
	if err := os.Symlink(s.env["HOME"], linked); err != nil {
		t.Fatal(err)
	}
	real := s.env["HOME"]
	s.env["HOME"] = linked
	s.write(filepath.Join(real, ".pi/agent/settings.json"), `{"enabledModels":["x`+linked+`/t","x`+real+`/t","acme/m"]}`)
	run()
	if s.do("inspect", "--pi"); strings.Count(s.out.String(), "(it leads to this machine's home)") != 2 || !strings.Contains(s.out.String(), `"acme/m"`) {
		t.Error(s.out.String())
	}
}

// A model that stays out is told at each start.
func TestPiTellsWhatIsLeft(t *testing.T) {
	s, run := piStage(t, `{"providers":{"acme":{"authHeader":true,"models":[{"id":"m"},{"id":"sk-live-AbCd1234EfGh5678IjKl"}]}}}`, `{}`)
	run()
	if !strings.Contains(s.err.String(), "pi in the sandbox is without providers.acme.models.1 (its id: it may be a key) of ~/.pi/agent/models.json; ai-sandbox inspect --pi tells") || strings.Contains(s.err.String(), "AbCd") {
		t.Error(s.err.String())
	}
}
