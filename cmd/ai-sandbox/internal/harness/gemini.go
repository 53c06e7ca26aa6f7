// Google's Gemini, 0.61.0.

package harness

var _ = add(Harness{
	Order: 5, Name: "gemini", Command: []string{"gemini"}, About: "Google's Gemini",
	Package: "@google/gemini-cli", Version: "0.61.0",
	Credentials: []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"},
	// The second one is Vertex AI's, in its express mode.
	Hosts: []string{"generativelanguage.googleapis.com"}, BaseURL: "GOOGLE_GEMINI_BASE_URL",
	HostOf:  map[string]string{"GEMINI_API_KEY": "generativelanguage.googleapis.com", "GOOGLE_API_KEY": "aiplatform.googleapis.com"},
	Skip:    Skip{Flag: "--yolo", Chosen: Chosen{Choices: []string{"--approval-mode", "--yolo"}, Short: []string{"-y"}}},
	Session: Session{New: []string{"--session-id", ID}, Resume: []string{"--resume", ID}, Last: []string{"--resume", "latest"}},
	Model:   "--model",
	Verbs:   []string{"extension", "extensions", "gemma", "hook", "hooks", "mcp", "skill", "skills"},
	// Its login is for its maker's own service, and is not taken along.
	guide: ".gemini/GEMINI.md",
	dir:   ".gemini", seeds: geminiSeeds,
	dangers: "settings, extensions, hooks, skills, MCP servers and policies",
	project: []string{".gemini/", "GEMINI.md"},
})

// geminiSeeds: without them gemini asks whether the directory is trusted, and how it is
// logged in where a variable says so already.
func geminiSeeds(workdir string, value func(string) string) []Seed {
	out := []Seed{{Path: ".gemini/trustedFolders.json", Mode: 0o600, Content: asJSON(map[string]any{workdir: "TRUST_FOLDER"})}}
	var by string
	switch {
	case value("GEMINI_API_KEY") != "":
		by = "gemini-api-key"
	case value("GOOGLE_API_KEY") != "":
		by = "vertex-ai"
	default:
		return out
	}
	return append(out, Seed{Path: ".gemini/settings.json", Mode: 0o600, Content: asJSON(map[string]any{
		"security": map[string]any{"auth": map[string]any{"selectedType": by}},
	})})
}
