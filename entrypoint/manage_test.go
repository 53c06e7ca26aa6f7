package entrypoint

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// What a sandbox can leave in its home, for its next start: a file is brought in, or
// what is in the way is told, and nothing outside of the home is touched.
func TestManage(t *testing.T) {
	mend := map[string]string{
		"a link on the way": spec.MendRemove, "a link to above on the way": spec.MendRemove, "a file on the way": spec.MendRemove, "a FIFO in its place": spec.MendRemove,
		"a directory in its place": spec.MendTree, "a directory in the base's place": spec.MendTree, "too long": spec.MendRemove,
	}
	const name, base = "settings.json", ".aisb-settings.json.wrote"
	type files map[string]string // "-> x" is a link, "|" a FIFO, "/" a directory
	victim := filepath.Join(t.TempDir(), "victim")
	for _, tc := range []struct {
		what  string
		there files // below home
		path  string
		keys  bool
		host  string
		state string
		want  files // afterwards; "" is nothing
	}{
		{"a new home", nil, ".pi/agent/" + name, true, `{"a":1}`, "", files{".pi/agent/" + name: `{"a":1}`, ".pi/agent/" + base: `{"a":1}`}},
		{"changed inside", files{".pi/agent/" + name: `{"a":9,"x":1}`, ".pi/agent/" + base: `{"a":1}`}, ".pi/agent/" + name, true, `{"a":2}`, "",
			files{".pi/agent/" + name: `{"a":9,"x":1}`, ".pi/agent/" + base: `{"a":1}`}},
		{"no JSON", files{"a/" + name: `{"a":`}, "a/" + name, true, `{"a":2}`, spec.NoteReseeded, files{"a/" + name: `{"a":2}`}},
		{"whole, changed inside", files{"a/m": "mine", "a/.aisb-m.wrote": "old"}, "a/m", false, "new", spec.NoteKept, files{"a/m": "mine", "a/.aisb-m.wrote": "old"}},
		{"whole, untouched", files{"a/m": "old", "a/.aisb-m.wrote": "old"}, "a/m", false, "new", "", files{"a/m": "new", "a/.aisb-m.wrote": "new"}},
		{"whole, gone on the host", files{"a/m": "old", "a/.aisb-m.wrote": "old"}, "a/m", false, "none", "", files{"a/m": "", "a/.aisb-m.wrote": ""}},
		{"whole, empty on the host", files{"a/m": "old", "a/.aisb-m.wrote": "old"}, "a/m", false, "", "", files{"a/m": "empty"}},
		{"a link in its place", files{"a/m": "-> " + victim}, "a/m", false, "new", "", files{"a/m": "new"}},
		{"a link in the base's place", files{"a/m": "x", "a/.aisb-m.wrote": "-> " + victim}, "a/m", false, "x", "", files{"a/m": "x", "a/.aisb-m.wrote": "x"}},
		{"a link on the way", files{"a": "-> " + filepath.Dir(victim)}, "a/m", false, "new", spec.NoteUnread, files{"a": "-> " + filepath.Dir(victim)}},
		{"a link to above on the way", files{"a": "-> .."}, "a/m", false, "new", spec.NoteUnread, nil},
		{"a file on the way", files{"a": "file"}, "a/b/m", false, "new", spec.NoteUnread, files{"a": "file"}},
		{"a FIFO in its place", files{"a/m": "|"}, "a/m", false, "new", spec.NoteUnread, nil},
		{"a directory in its place", files{"a/m": "/"}, "a/m", false, "new", spec.NoteUnread, nil},
		{"a directory in the base's place", files{"a/.aisb-m.wrote": "/"}, "a/m", false, "new", spec.NoteUnread, files{"a/m": "new"}},
		{"too long", files{"a/m": strings.Repeat("x", spec.MaxManaged+1)}, "a/m", false, "new", spec.NoteUnread, nil},
		{"right in the home", nil, "m", false, "new", "", files{"m": "new"}},
	} {
		home := filepath.Join(t.TempDir(), "home")
		if err := os.Mkdir(home, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(victim, []byte("untouched"), 0o600); err != nil {
			t.Fatal(err)
		}
		for p, text := range tc.there {
			plant(t, filepath.Join(home, p), text)
		}
		m := spec.Managed{Home: home, Path: tc.path, Content: []byte(tc.host), Mode: 0o600, Keys: tc.keys}
		if tc.host == "none" {
			m.Content, m.None = nil, true
		}
		n := manage(m)
		at := tc.path
		if strings.HasSuffix(tc.what, "on the way") {
			at = "a"
		} else if strings.Contains(tc.what, "base's") && tc.state != "" {
			at = "a/.aisb-m.wrote"
		}
		if n.State != tc.state || n.Path != at || (n.State == spec.NoteUnread) != (n.Reason != "") || n.Mend != mend[tc.what] {
			t.Errorf("%s: %+v, want %s", tc.what, n, tc.state)
		}
		for p, want := range tc.want {
			got := "" // nothing
			info, err := os.Lstat(filepath.Join(home, p))
			if err == nil && info.Mode()&os.ModeSymlink != 0 {
				to, _ := os.Readlink(filepath.Join(home, p))
				got = "-> " + to
			} else if err == nil {
				data, err := os.ReadFile(filepath.Join(home, p))
				if err != nil {
					t.Fatal(err)
				}
				if got = compact(data); got == "" {
					got = "empty"
				}
				if _, was := tc.there[p]; !was && info.Mode() != 0o600 {
					t.Errorf("%s: %s has mode %v", tc.what, p, info.Mode())
				}
			}
			if got != want {
				t.Errorf("%s: %s is %q, want %q", tc.what, p, got, want)
			}
		}
		if data, err := os.ReadFile(victim); err != nil || string(data) != "untouched" {
			t.Errorf("%s: outside, %q %v", tc.what, data, err)
		}
		if list, err := os.ReadDir(filepath.Dir(victim)); err != nil || len(list) != 1 {
			t.Errorf("%s: outside, %v %v", tc.what, list, err)
		}
	}
}

// compact takes the spaces out of JSON.
func compact(data []byte) string {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return string(data)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func plant(t *testing.T, at, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(at), 0o700)
	to, link := strings.CutPrefix(text, "-> ")
	switch {
	case err != nil:
	case link:
		err = os.Symlink(to, at)
	case text == "|":
		err = unix.Mkfifo(at, 0o600)
	case text == "/":
		err = os.Mkdir(at, 0o700)
	default:
		err = os.WriteFile(at, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
