// The grammar of both files, the user's and the project's: "key = value" lines,
// and profiles of such lines.

package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// FileName is the user's file in our configuration directory.
const FileName = "config"

const maxFile = 1 << 20

// A File is what a file says: the settings that always hold, and
// those that hold when their profile is chosen.
type File struct {
	Items    []Item
	Profiles []Profile
	// Scripts are the files that a project's file has run, by the path that it
	// names each with. ReadProject reads them.
	Scripts []ScriptFile
}

// ReadFile reads the user's file. A file that is not there is empty.
func ReadFile(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0) // a FIFO would wait
	if errors.Is(err, fs.ErrNotExist) {
		return File{}, nil
	}
	if err != nil {
		return File{}, fmt.Errorf("read configuration: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return File{}, fmt.Errorf("read configuration: %w", err)
	}
	// Whoever can write the file decides what a sandbox may do.
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return File{}, &Error{Origin: path, Text: "the configuration is not a regular file", Fix: "move it away"}
	case info.Mode().Perm()&0o002 != 0:
		return File{}, &Error{Origin: path, Text: "other users can write this file", Fix: "run: chmod o-w " + path}
	case !ok || st.Uid != 0 && int(st.Uid) != os.Getuid():
		return File{}, &Error{Origin: path, Text: "another user owns this file", Fix: "make it your own: move it away and copy it back"}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return File{}, fmt.Errorf("read configuration: %w", err)
	}
	if len(data) > maxFile {
		return File{}, &Error{Origin: path, Text: "the file is longer than 1 MiB", Fix: "shorten it"}
	}
	return ParseFile(path, data)
}

// ParseFile reads the text of a user's file, which is called name in errors.
// Comments are lines that begin with "#"; "key =" alone empties what came before.
// A line "[profile NAME]" begins a profile, which goes on to the next one.
func ParseFile(name string, data []byte) (File, error) { return parse(name, data, InFile) }

// ParseProject is ParseFile for a project's file, which may hold fewer keys.
func ParseProject(name string, data []byte) (File, error) { return parse(name, data, InProject) }

func parse(name string, data []byte, from Source) (File, error) {
	var f File
	var errs errorList
	seen := map[string]int{} // in the section
	begun := map[string]int{}
	items, profile := &f.Items, ""
	for n, line := range strings.Split(string(data), "\n") {
		at := fmt.Sprintf("%s:%d", name, n+1)
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		bad := func(text, fix string) { errs.add(&Error{Origin: at, Text: text, Fix: fix}) }
		if !utf8.ValidString(line) || strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) && r != '\t' }) >= 0 {
			bad("the line holds a character that is not printable", "retype it as plain text")
			continue
		}
		if line[0] == '[' {
			// What follows is this profile's, whatever is wrong with its name.
			var err error
			seen = map[string]int{}
			if profile, err = section(line); err != nil {
				bad(err.Error(), "write [profile NAME], with a NAME of a-z, 0-9, - and _")
			} else if begun[profile] != 0 {
				bad(fmt.Sprintf("profile %s begins again, after line %d", profile, begun[profile]), "put its settings together")
			}
			begun[profile] = n + 1
			f.Profiles = append(f.Profiles, Profile{Name: profile})
			items = &f.Profiles[len(f.Profiles)-1].Items
			continue
		}
		origin := at
		if len(f.Profiles) > 0 {
			origin = fmt.Sprintf("profile %s (%s)", profile, at)
		}
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if as := alsoInFiles[key]; as != "" {
			key = as
		}
		o, known := Lookup(key)
		switch {
		case !ok:
			bad(fmt.Sprintf("%q is not a setting", line), "write key = value")
		case !known:
			bad(fmt.Sprintf("key %q is unknown", key), suggest(key, fileKeys(from), "remove the line"))
		case from == InProject && o.In(InFile) && !o.In(InProject):
			bad(fmt.Sprintf("%s can't be set in a project's file", key), "remove the line, or move it to your own file")
		case !o.In(from):
			bad(fmt.Sprintf("%s can't be set in a file", key), "use --"+o.Flag())
		case o.Key == profileKey && len(f.Profiles) > 0:
			bad("a profile can't choose a profile", "put the line before the first [profile NAME]")
		case strings.Contains(value, " #") || strings.HasPrefix(value, "#"):
			bad("a comment can't follow a value", "give the comment a line of its own")
		case o.Kind != List && value != "" && seen[key] != 0:
			bad(fmt.Sprintf("%s is set again, after line %d", key, seen[key]), "keep one of them")
		case o.Kind == Script && value != "" && from == InProject && !scriptPath(value):
			bad(fmt.Sprintf("%s %q is not a path in the project", key, value), "name a file there, as in .ai-sandbox/setup.sh")
		case (o.Kind == Path || o.Kind == Script && from != InProject) && value != "" && value[0] != '/' && !strings.HasPrefix(value, "~/"):
			bad(fmt.Sprintf("%s %q is not an absolute path", key, value), "begin it with / or ~/")
		default:
			if value != "" {
				seen[key] = n + 1
			}
			it := Item{Key: key, Value: value, Origin: origin}
			// A profile may go unused for long: its values are judged now.
			if len(f.Profiles) > 0 {
				if err := o.check(it); err != nil {
					errs.add(err)
					continue
				}
			}
			*items = append(*items, it)
		}
	}
	return f, errs.join()
}

// alsoInFiles are further names that keys have in files: each set of agents is an image.
var alsoInFiles = map[string]string{"images": "harness_packages"}

func fileKeys(from Source) []string {
	var out []string
	for _, o := range Options {
		if o.In(from) {
			out = append(out, o.Key)
		}
	}
	return out
}

func suggest(s string, candidates []string, otherwise string) string {
	for _, c := range candidates {
		if strings.EqualFold(s, c) {
			return fmt.Sprintf("did you mean %s?", c)
		}
	}
	if near := Near(s, candidates); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return otherwise
}
