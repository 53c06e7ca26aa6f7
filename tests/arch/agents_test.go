package arch_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const adapters = internal + "harness"

// elsewhere are the files that may name an agent beside its own, and why.
var elsewhere = map[string]struct{ names, why string }{
	adapters + "/harness.go":           {"pi", "it is the default"},
	adapters + "/pibridge/bridge.go":   {"pi", "its configuration's bridge is code of its own"},
	adapters + "/pibridge/settings.go": {"pi", "likewise"},
	adapters + "/pibridge/shapes.go":   {"pi codex", "likewise"},
	adapters + "/pibridge/names.go":    {"pi", "likewise"},
	internal + "cli/pi.go":             {"pi", "likewise"},
	internal + "cli/run.go":            {"pi", "the bridge's settings"},
	internal + "cli/secrets.go":        {"pi", "likewise"},
	internal + "cli/thinking.go":       {"pi", "likewise"},
	internal + "config/option.go":      {"pi", "likewise"},
	internal + "cli/inspect.go":        {"pi", "inspect --pi shows what the bridge does"},
	internal + "cli/explain.go":        {"claude", "an example in the help"},
	internal + "cli/gate.go":           {"pi", "likewise"},
	internal + "cli/help.go":           {"pi claude", "likewise"},
	internal + "cli/policy.go":         {"pi", "likewise"},
	"policy/protect.go":                {"claude", "the protected paths are a promise of docs/protected.md, whatever runs"},
}

// TestAgentsAreInTheirFiles: whoever adds an agent writes one file, as all that is said of
// it is there. No other code has its name.
func TestAgentsAreInTheirFiles(t *testing.T) {
	sources := files(t)
	agents := map[string]string{} // their files, by names
	facts := map[string]string{}  // whose it is, of what is said of them
	for name, text := range sources {
		if filepath.Dir(name) == adapters && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			for _, agent := range added(t, name, text, facts) {
				if agents[agent] != "" || path.Base(name) != agent+".go" {
					t.Errorf("%s is added in %s (and in %q)", agent, name, agents[agent])
				}
				agents[agent] = name
			}
		}
	}
	if len(agents) < 6 || len(facts) < 10 {
		t.Fatalf("found only %v and %v", agents, facts)
	}
	used := map[string]bool{}
	for name, text := range sources {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || under(name, "tests") {
			continue
		}
		for agent, line := range named(t, name, text, agents, facts) {
			allowed := strings.Fields(elsewhere[name].names)
			if agents[agent] == name {
				continue
			}
			if slices.Contains(allowed, agent) {
				used[name+" "+agent] = true
				continue
			}
			t.Errorf("%s: %s is named outside of %s: say it there", line, agent, agents[agent])
		}
	}
	for name, e := range elsewhere {
		for _, agent := range strings.Fields(e.names) {
			if !used[name+" "+agent] {
				t.Errorf("%s does not name %s any more (%s)", name, agent, e.why)
			}
		}
	}
}

// added are the agents that a file puts into the table. facts gets what is theirs alone.
func added(t *testing.T, name string, text []byte, facts map[string]string) (out []string) {
	t.Helper()
	unquote := func(n ast.Expr) string {
		s, err := strconv.Unquote(n.(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ast.Inspect(parsed(t, token.NewFileSet(), name, text), func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		f, ok1 := call.Fun.(*ast.Ident)
		lit, ok2 := call.Args[0].(*ast.CompositeLit)
		if !ok1 || !ok2 || f.Name != "add" {
			return true
		}
		var agent string
		for _, e := range lit.Elts {
			kv := e.(*ast.KeyValueExpr)
			switch key := fmt.Sprint(kv.Key); key {
			case "Name":
				agent = unquote(kv.Value)
				out = append(out, agent)
			case "Package", "Token", "BaseURL", "Credentials", "Hosts", "HostOf":
				ast.Inspect(kv.Value, func(n ast.Node) bool {
					if v, ok := n.(*ast.BasicLit); ok {
						fact := unquote(v)
						if of, ok := facts[fact]; ok && of != agent {
							facts[fact] = "" // a provider's, and so several agents'
						} else {
							facts[fact] = agent
						}
					}
					return true
				})
			}
		}
		return true
	})
	return out
}

func parsed(t *testing.T, set *token.FileSet, name string, text []byte) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// inIdentifier are the words of an identifier, and inString those of a string.
var (
	inIdentifier = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)
	inString     = regexp.MustCompile(`[A-Za-z]+`)
)

// named are the agents whose names are words of a file's strings and identifiers, or whose
// facts are in its strings, with a place of each. What is said of one in a comment is for
// whoever reads.
func named(t *testing.T, name string, text []byte, agents, facts map[string]string) map[string]string {
	t.Helper()
	out := map[string]string{}
	set := token.NewFileSet()
	ast.Inspect(parsed(t, set, name, text), func(n ast.Node) bool {
		var words []string
		switch n := n.(type) {
		case *ast.Ident:
			words = inIdentifier.FindAllString(n.Name, -1)
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				words = inString.FindAllString(n.Value, -1)
				for fact, agent := range facts {
					if agent != "" && strings.Contains(n.Value, fact) {
						words = append(words, agent)
					}
				}
			}
		}
		for _, w := range words {
			if agent := strings.ToLower(w); agents[agent] != "" {
				out[agent] = set.Position(n.Pos()).String()
			}
		}
		return true
	})
	return out
}
