package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of settings into docs/configuration.md")

// The document's table is the table of options.
func TestDocumentedSettings(t *testing.T) {
	const file = "../../../../docs/configuration.md"
	const begin, end = "<!-- settings: made by go test ./cmd/ai-sandbox/internal/config -update -->\n", "<!-- end of settings -->\n"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", file)
	}
	want := before + begin + settingsTable() + end + after
	if want == string(data) {
		return
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s has another table than option.go; see the difference with -update", file)
}

func settingsTable() string {
	var b strings.Builder
	b.WriteString("| setting | what | built-in | not in | in a project's file |\n| --- | --- | --- | --- | --- |\n")
	for _, o := range Options {
		values := o.Arg
		if o.Kind == Bool {
			values = "true\\|false"
		}
		if o.Values != nil {
			values = strings.Join(o.Values, "\\|")
		}
		var not []string
		for _, s := range []struct {
			Source
			name string
		}{{InFile, "files"}, {InEnv, "variables"}, {InFlag, "flags"}} {
			if !o.In(s.Source) {
				not = append(not, s.name)
			}
		}
		project := "narrow freely"
		switch {
		case !o.In(InProject):
			project = "never"
		case o.Widens == nil:
			project = "trust"
		}
		fmt.Fprintf(&b, "| `%s = %s` | %s | %s | %s | %s |\n", o.Key, values, strings.ReplaceAll(o.Usage, "|", "\\|"), o.Default, strings.Join(not, ", "), project)
	}
	return b.String()
}
