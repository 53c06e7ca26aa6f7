// The user's file: "key = value" lines.

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// FileName is the user's file in our configuration directory.
const FileName = "config"

const maxFile = 1 << 20

// ReadFile reads the user's file. A file that is not there is empty.
func ReadFile(path string) ([]Item, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	// Whoever can write the file decides what a sandbox may do.
	if !info.Mode().IsRegular() {
		return nil, &Error{Origin: path, Text: "the configuration is not a regular file", Fix: "move it away"}
	}
	if info.Mode().Perm()&0o002 != 0 {
		return nil, &Error{Origin: path, Text: "other users can write this file", Fix: "run: chmod o-w " + path}
	}
	if info.Size() > maxFile {
		return nil, &Error{Origin: path, Text: "the file is longer than 1 MiB", Fix: "shorten it"}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return ParseFile(path, data)
}

// ParseFile reads the text of a file that is called name in errors. Comments
// are lines that begin with "#"; "key =" alone empties what came before.
func ParseFile(name string, data []byte) ([]Item, error) {
	var items []Item
	var errs errorList
	seen := map[string]int{}
	for n, line := range strings.Split(string(data), "\n") {
		at := fmt.Sprintf("%s:%d", name, n+1)
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		bad := func(text, fix string) { errs.add(&Error{Origin: at, Text: text, Fix: fix}) }
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		o, known := Lookup(key)
		switch {
		case !utf8.ValidString(line) || strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) && r != '\t' }) >= 0:
			bad("the line holds a character that is not printable", "retype it as plain text")
		case !ok:
			bad(fmt.Sprintf("%q is not a setting", line), "write key = value")
		case !known:
			bad(fmt.Sprintf("key %q is unknown", key), suggest(key, fileKeys(), "remove the line"))
		case !o.In(InFile):
			bad(fmt.Sprintf("%s can't be set in a file", key), "use --"+o.Flag())
		case strings.Contains(value, " #") || strings.HasPrefix(value, "#"):
			bad("a comment can't follow a value", "give the comment a line of its own")
		case o.Kind != List && value != "" && seen[key] != 0:
			bad(fmt.Sprintf("%s is set again, after line %d", key, seen[key]), "keep one of them")
		case o.Kind == Path && value != "" && value[0] != '/' && !strings.HasPrefix(value, "~/"):
			bad(fmt.Sprintf("%s %q is not an absolute path", key, value), "begin it with / or ~/")
		default:
			if value != "" {
				seen[key] = n + 1
			}
			items = append(items, Item{Key: key, Value: value, Origin: at})
		}
	}
	return items, errs.join()
}

func fileKeys() []string {
	var out []string
	for _, o := range Options {
		if o.In(InFile) {
			out = append(out, o.Key)
		}
	}
	return out
}

func suggest(s string, candidates []string, otherwise string) string {
	if near := Near(s, candidates); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return otherwise
}
