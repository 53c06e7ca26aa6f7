//go:build e2e

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
	"ai-sandbox/tests/e2e/internet"
	"ai-sandbox/tests/e2e/model"
)

// serve starts a model at an address that is like one of the internet's.
func serve(t *testing.T, m *model.Model) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", internet.Allowed+":0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ = net.SplitHostPort(l.Addr().String())
	s := &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }() // ends with the test
	t.Cleanup(func() { s.Close() })
	return port
}

// The real pi does a whole task over the gate, with a model that calls its tools: it
// writes a file, runs a command, tries a host that is off the list, and ends.
func TestPiDoesATask(t *testing.T) {
	u := newPiUser(t)
	const content = "made by the agent\n"
	sum := sha256.Sum256([]byte(content))
	hash := hex.EncodeToString(sum[:])
	no := u.Host("no.test")
	m := &model.Model{Key: "key-" + u.Token + "-0123", Turns: []model.Turn{
		{Tool: "write", Args: map[string]any{"path": "made.txt", "content": content}},
		{Tool: "bash", Args: map[string]any{"command": "sha256sum made.txt | tee sum"}},
		{Tool: "bash", Args: map[string]any{"command": "curl -sS https://" + no + "/ 2>&1; true"}},
		{Text: "The task of " + u.Token + " is done."},
	}}
	at := u.Host("ok.test") + ":" + serve(t, m)
	u.has("models.json", fmt.Sprintf(`{"providers":{"acme":{"baseUrl":"http://%s/v1","api":"openai-completions","apiKey":"never sent","compat":{"supportsReasoningEffort":true},
		"models":[{"id":"m","reasoning":true,"thinkingLevelMap":{"xhigh":"xhigh"}}]}}}`, at))
	u.has("settings.json", `{"defaultProvider":"acme","defaultModel":"m"}`)
	u.Env = []string{"AI_API_TOKEN=" + m.Key}

	// Without its host on the list that is said, and the task is not done.
	r := u.Run("--allow", "example.test", "pi", "--list-models")
	if !strings.Contains(r.Err, "pi has its model at "+at+", which the allowlist does not let through; add: --allow "+at+"\n") || len(m.Asked()) > 0 {
		t.Errorf("%s", r)
	}

	report := filepath.Join(t.TempDir(), "report")
	r = u.Run("--report", report, "--allow", at, "pi", "--mode", "json", "-p", "do it")
	asked := m.Asked()
	if r.Code != 0 || strings.Contains(r.Err, "does not let through") {
		t.Errorf("%s", r)
	}
	if len(asked) != len(m.Turns) {
		t.Fatalf("the model was asked %d times: %s", len(asked), r)
	}
	events, refused := m.Streamed()
	if deltas := strings.Count(r.Out, `"type":"message_update"`); refused > 0 || events < 20 || deltas < 20 || !strings.Contains(r.Out, "The task of "+u.Token+" is done.") {
		t.Errorf("%d events were streamed, %d seen, %d requests without the key", events, deltas, refused)
	}
	if u.File(t, "made.txt") != strings.TrimSpace(content) || !strings.HasPrefix(u.File(t, "sum"), hash) {
		t.Errorf("the tree has %q and %q", u.File(t, "made.txt"), u.File(t, "sum"))
	}
	// What the model was told: the hash, the refusal, the guide and how much to reason.
	for i, want := range []string{"/etc/aisb/GUIDE.md", "", hash, "response 403"} {
		if !strings.Contains(asked[i], want) {
			t.Errorf("request %d has no %q: %s", i, want, drive.Tail(asked[i]))
		}
	}
	if !strings.Contains(asked[0], `"reasoning_effort":"xhigh"`) {
		t.Errorf("how much to reason is not asked for: %s", drive.Tail(asked[0]))
	}
	rep := drive.ReadReport(t, report)
	if !slices.ContainsFunc(rep.Refused, func(r map[string]any) bool { return r["host"] == no }) || rep.EndedBy != "command" {
		t.Errorf("%+v", rep)
	}
	if _, err := os.Stat(filepath.Join(u.Dir, ".pi")); err == nil {
		t.Error("pi left something in the project")
	}
}
