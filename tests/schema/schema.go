// Package schema holds JSON that a program of ours writes to what our documents
// say about it: to a JSON schema in one of them. It knows the few words of
// JSON Schema that the documents use, and refuses any other.
package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Documented checks text against the schema that a document has below a line
// "<!-- schema: NAME -->". The schema's words say what has to be there; beyond
// that, a field that it does not describe is an error too: what is written has to
// be documented.
func Documented(file, name string, text []byte) error {
	doc, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the document: %w", err)
	}
	_, rest, ok := strings.Cut(string(doc), "<!-- schema: "+name+" -->")
	if !ok {
		return fmt.Errorf("%s has no schema %s", file, name)
	}
	_, rest, _ = strings.Cut(rest, "```json\n")
	source, _, ok := strings.Cut(rest, "\n```")
	if !ok {
		return fmt.Errorf("%s has no schema %s", file, name)
	}
	return against(name, []byte(source), text)
}

// InFile checks text against the schema that is a file of its own.
func InFile(file, name string, text []byte) error {
	source, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	return against(name, source, text)
}

func against(name string, source, text []byte) error {
	var s map[string]any
	if err := json.Unmarshal(source, &s); err != nil {
		return fmt.Errorf("read the schema %s: %w", name, err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("read the JSON: %w", err)
	}
	return check(name, s, v)
}

// words of JSON Schema, and whether they are checked here.
var words = map[string]bool{
	"$schema": false, "title": false, "description": false,
	"additionalProperties": false, // as if it were false everywhere
	"type":                 true, "const": true, "enum": true, "pattern": true, "minimum": true, "items": true, "properties": true, "required": true,
}

// check reports every difference between a value and a schema.
func check(at string, s map[string]any, v any) error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(at+": "+format, a...)) }
	for w := range s {
		if _, ok := words[w]; !ok {
			bad("the schema's word %q is not known here", w)
		}
	}
	if want, ok := s["type"].(string); ok && want != kind(v) && (want != "number" || kind(v) != "integer") {
		bad("it is %s, and %s is documented", kind(v), want)
		return errors.Join(errs...)
	}
	if want, ok := s["const"]; ok && !reflect.DeepEqual(want, v) {
		bad("it is %v, not %v", v, want)
	}
	if list, ok := s["enum"].([]any); ok && !slices.ContainsFunc(list, func(w any) bool { return reflect.DeepEqual(w, v) }) {
		bad("it is %v, not one of %v", v, list)
	}
	if p, ok := s["pattern"].(string); ok {
		if text, _ := v.(string); !regexp.MustCompile(p).MatchString(text) {
			bad("%q does not match %s", text, p)
		}
	}
	if least, ok := s["minimum"].(float64); ok {
		if n, _ := v.(float64); n < least {
			bad("%v is less than %v", n, least)
		}
	}
	switch v := v.(type) {
	case []any:
		items, ok := s["items"].(map[string]any)
		if !ok {
			bad("what is in the list is not documented")
		}
		for i, e := range v {
			errs = append(errs, check(fmt.Sprintf("%s[%d]", at, i), items, e))
		}
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		for name, e := range v {
			p, ok := properties[name].(map[string]any)
			if s["properties"] == nil {
				continue // its names are data
			}
			if !ok {
				bad("the field %q is not documented", name)
				continue
			}
			errs = append(errs, check(at+"."+name, p, e))
		}
		required, _ := s["required"].([]any)
		for _, r := range required {
			if name, _ := r.(string); v[name] == nil {
				bad("the field %q is missing", name)
			}
		}
	}
	return errors.Join(errs...)
}

// kind is the JSON type of a value.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}
