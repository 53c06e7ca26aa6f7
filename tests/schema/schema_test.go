package schema

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDocumented(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	const doc = "# Doc\n<!-- schema: thing -->\n```json\n" + `{"type": "object", "required": ["id", "list"], "properties": {
		"id": {"type": "string", "pattern": "^[a-z]+$"}, "kind": {"enum": ["a", "b"]}, "n": {"type": "integer", "minimum": 2}, "f": {"type": "number"},
		"list": {"type": "array", "items": {"type": "string"}}, "map": {"type": "object"}, "v": {"const": 1}}}` + "\n```\n"
	if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, wrong := range map[string]string{
		`{"id":"x","list":["a"],"kind":"b","n":2,"f":1,"map":{"any":1},"v":1}`: "",
		`{"id":"x","list":[],"f":1.5}`:                                         "",

		`{"id":"x"}`:                      `thing: the field "list" is missing`,
		`{"id":"X","list":[]}`:            `thing.id: "X" does not match ^[a-z]+$`,
		`{"id":1,"list":[]}`:              "thing.id: it is integer, and string is documented",
		`{"id":"x","list":[1]}`:           "thing.list[0]: it is integer, and string is documented",
		`{"id":"x","list":[],"kind":"c"}`: "thing.kind: it is c, not one of [a b]",
		`{"id":"x","list":[],"n":1}`:      "thing.n: 1 is less than 2",
		`{"id":"x","list":[],"n":2.5}`:    "thing.n: it is number, and integer is documented",
		`{"id":"x","list":[],"v":2}`:      "thing.v: it is 2, not 1",
		`{"id":"x","list":[],"new":true}`: `thing: the field "new" is not documented`,
		`[]`:                              "thing: it is array, and object is documented",
		`{`:                               "read the JSON: unexpected end of JSON input",
	} {
		err := Documented(file, "thing", []byte(text))
		if err == nil && wrong != "" || err != nil && err.Error() != wrong {
			t.Errorf("%s: %v, not %s", text, err, wrong)
		}
	}
	if err := Documented(file, "other", []byte("{}")); err == nil || !strings.Contains(err.Error(), "no schema other") {
		t.Errorf("a schema that is not there: %v", err)
	}
}
