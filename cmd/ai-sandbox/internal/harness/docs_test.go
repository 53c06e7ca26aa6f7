package harness

import (
	"os"
	"strings"
	"testing"
)

// TestDocs holds the table of docs/harnesses.md to the adapters. The end-to-end tests
// look its flags up in the real programs.
func TestDocs(t *testing.T) {
	const file, begin, end = "../../../../docs/harnesses.md", "<!-- agents -->\n", "<!-- /agents -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", file)
	}
	code := func(words ...string) string {
		if s := strings.Join(words, " "); s != "" {
			return "`" + s + "`"
		}
		return ""
	}
	list := func(names []string) string {
		var out []string
		for _, n := range names {
			out = append(out, code(n))
		}
		return strings.Join(out, ", ")
	}
	var b strings.Builder
	b.WriteString("| agent | npm | skip flag | model | new session | resume, the last | key | host |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, h := range Table {
		npm := ""
		if h.Package != "" {
			npm = code(h.Package) + " " + h.Version
		}
		resume := strings.Trim(code(h.Session.Resume...)+", "+code(h.Session.Last...), ", ")
		b.WriteString("| " + strings.Join([]string{h.Name, npm, code(h.Skip.Flag), code(h.Model), code(h.Session.New...), resume, list(h.Credentials), list(h.Hosts)}, " | ") + " |\n")
	}
	want := head + begin + b.String() + end + tail
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
	if string(text) != want && !*update {
		t.Errorf("%s is not what the adapters say; go test -update writes it", file)
	}
}
