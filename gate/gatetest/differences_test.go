package gatetest

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table into docs/gate-engines.md")

const (
	doc   = "../../docs/gate-engines.md"
	begin = "<!-- Differences of gate/gatetest -->\n"
	end   = "<!-- end -->\n"
)

// TestPublished: the document has the table of differences, all of it.
func TestPublished(t *testing.T) {
	b, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(b), begin)
	table, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no %q", doc, begin)
	}
	if *update {
		if err := os.WriteFile(doc, []byte(head+begin+Published()+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != Published() {
		t.Errorf("%s is not what the engines do; go test ./gate/gatetest -update writes it", doc)
	}
}

func TestTable(t *testing.T) {
	rows := Rows("127.0.0.1:3128")
	if err := Check(rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) < 120 {
		t.Errorf("%d rows", len(rows))
	}
	seen := map[string]bool{}
	for _, d := range Differences {
		if _, err := RowOf("127.0.0.1:3128", d.Row); err != nil {
			t.Error(err)
		}
		if d.Engine != Squid && d.Engine != Builtin || d.Does == "" || d.Why == "" || d.Instead == nil {
			t.Errorf("the difference on %q is not told in full", d.Row)
		}
		if seen[d.Row] {
			t.Errorf("%q differs twice", d.Row)
		}
		seen[d.Row] = true
	}
	if err := Check(append(rows, Row{Name: "x", Control: "get no"})); err == nil {
		t.Error("a refusal passes whose control is one, too")
	}
}
