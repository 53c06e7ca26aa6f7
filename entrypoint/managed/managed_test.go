package managed

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

// none is a version that is not there.
const none = "-"

func bytesOf(s string) []byte {
	if s == none {
		return nil
	}
	return []byte(s)
}

func textOf(b []byte) string {
	if b == nil {
		return none
	}
	return string(b)
}

func TestWhole(t *testing.T) {
	for _, tc := range []struct {
		what, host, base, mine string
		file, wrote            string
		kept                   bool
	}{
		{"nothing anywhere", none, none, none, none, none, false},
		{"the first time", "h", none, none, "h", "h", false},
		{"nothing changed", "h", "h", "h", "h", "h", false},
		{"changed on the host", "h2", "h", "h", "h2", "h2", false},
		{"changed inside", "h", "h", "m", "m", "h", true},
		{"still changed inside, at the next start", "h", "h", "m", "m", "h", true},
		{"changed on both sides", "h2", "h", "m", "m", "h", true},
		{"changed on both sides to the same", "h2", "h", "h2", "h2", "h2", false},
		{"changed inside and back", "h", "h", "h", "h", "h", false},
		{"removed inside", "h", "h", none, "h", "h", false},
		{"removed inside, changed on the host", "h2", "h", none, "h2", "h2", false},
		{"removed on the host", none, "h", "h", none, none, false},
		{"removed on the host, changed inside", none, "h", "m", "m", "h", true},
		{"removed on both sides", none, "h", none, none, none, false},
		{"made inside, without a base", "h", none, "m", "m", none, true},
		{"the same inside, without a base", "h", none, "h", "h", "h", false},
		{"made inside, nothing on the host", none, none, "m", "m", none, false},
		{"emptied inside", "h", "h", "", "", "h", true},
	} {
		got := Whole(Input{bytesOf(tc.host), bytesOf(tc.base), bytesOf(tc.mine)})
		if textOf(got.File) != tc.file || textOf(got.Base) != tc.wrote || got.Kept != tc.kept || got.Reseeded {
			t.Errorf("%s: %s %s %+v", tc.what, textOf(got.File), textOf(got.Base), got)
		}
	}
}

func TestKeys(t *testing.T) {
	for _, tc := range []struct {
		what, host, base, mine string
		fixed                  string // an object, or ""
		file, wrote            string
		reseeded               bool
	}{
		{"nothing anywhere", none, none, none, "", `{}`, `{}`, false},
		{"the first time", `{"a":1}`, none, none, "", `{"a":1}`, `{"a":1}`, false},
		{"nothing changed", `{"a":1}`, `{"a":1}`, `{"a":1}`, "", `{"a":1}`, `{"a":1}`, false},
		{"an untouched key follows the host", `{"a":2}`, `{"a":1}`, `{"a":1}`, "", `{"a":2}`, `{"a":2}`, false},
		{"an untouched key that the host dropped goes", `{}`, `{"a":1}`, `{"a":1}`, "", `{}`, `{}`, false},
		{"all of the host's is gone", none, `{"a":1}`, `{"a":1,"x":1}`, "", `{"x":1}`, `{}`, false},
		{"a new key of the host's comes in", `{"a":1,"b":1}`, `{"a":1}`, `{"a":1}`, "", `{"a":1,"b":1}`, `{"a":1,"b":1}`, false},
		{"a key changed inside wins", `{"a":1}`, `{"a":1}`, `{"a":9}`, "", `{"a":9}`, `{"a":1}`, false},
		{"and wins when the host changes it", `{"a":2}`, `{"a":1}`, `{"a":9}`, "", `{"a":9}`, `{"a":1}`, false},
		{"and wins when the host drops it", `{}`, `{"a":1}`, `{"a":9}`, "", `{"a":9}`, `{"a":1}`, false},
		{"and follows again when it is changed back", `{"a":2}`, `{"a":1}`, `{"a":1}`, "", `{"a":2}`, `{"a":2}`, false},
		{"and when the host comes to the same", `{"a":9}`, `{"a":1}`, `{"a":9}`, "", `{"a":9}`, `{"a":9}`, false},
		{"a key removed inside stays away", `{"a":1,"b":1}`, `{"a":1,"b":1}`, `{"b":1}`, "", `{"b":1}`, `{"a":1,"b":1}`, false},
		{"also when the host changes it", `{"a":2}`, `{"a":1}`, `{}`, "", `{}`, `{"a":1}`, false},
		{"and is forgotten when the host drops it", `{}`, `{"a":1}`, `{}`, "", `{}`, `{}`, false},
		{"the file removed inside is the host's again", `{"a":2,"b":1}`, `{"a":1,"b":1}`, none, "", `{"a":2,"b":1}`, `{"a":2,"b":1}`, false},
		{"an empty file is the host's again", `{"a":2}`, `{"a":1}`, ``, "", `{"a":2}`, `{"a":2}`, true},
		{"an empty base is none", `{"a":2}`, ``, `{"a":9,"x":1}`, "", `{"a":2,"x":1}`, `{"a":2}`, false},
		{"a key made inside stays", `{"a":1}`, `{"a":1}`, `{"a":1,"x":7}`, "", `{"a":1,"x":7}`, `{"a":1}`, false},
		{"also when the host gets it with another value", `{"x":1}`, `{}`, `{"x":7}`, "", `{"x":7}`, `{}`, false},
		{"one key does not freeze the others", `{"a":2,"b":2}`, `{"a":1,"b":1}`, `{"a":9,"b":1,"seen":"1.4"}`, "", `{"a":9,"b":2,"seen":"1.4"}`, `{"a":1,"b":2}`, false},
		{"without a base the host's values count", `{"a":2}`, none, `{"a":9,"seen":"1.4"}`, "", `{"a":2,"seen":"1.4"}`, `{"a":2}`, false},
		{"a frozen file is repaired", `{"model":"m","level":"high"}`, none, `{"seen":"1.4.0"}`, "", `{"level":"high","model":"m","seen":"1.4.0"}`, `{"level":"high","model":"m"}`, false},
		{"a base that can't be read is none", `{"a":2}`, `{"a":`, `{"a":9,"x":1}`, "", `{"a":2,"x":1}`, `{"a":2}`, false},
		{"how a value is written is no change", `{"a":{"x":1,"y":[1.0]}}`, `{"a":{"x":1,"y":[1.0]}}`, "{\"a\": {\"y\": [1],\n \"x\": 1}}", "", `{"a":{"x":1,"y":[1.0]}}`, `{"a":{"x":1,"y":[1.0]}}`, false},
		{"an object is one key", `{"a":{"x":1,"y":2}}`, `{"a":{"x":1}}`, `{"a":{"x":5}}`, "", `{"a":{"x":5}}`, `{"a":{"x":1}}`, false},
		{"null is a value", `{"a":null}`, `{"a":1}`, `{"a":1}`, "", `{"a":null}`, `{"a":null}`, false},
		{"what is no JSON is the host's again", `{"a":1}`, `{"a":1}`, `{"a":`, "", `{"a":1}`, `{"a":1}`, true},
		{"a list is no object", `{"a":1}`, `{"a":1}`, `[1]`, "", `{"a":1}`, `{"a":1}`, true},
		{"null is none", `{"a":1}`, `{"a":1}`, `null`, "", `{"a":1}`, `{"a":1}`, true},
		{"two objects are none", `{"a":1}`, `{"a":1}`, `{}{}`, "", `{"a":1}`, `{"a":1}`, true},
		{"a comment is no JSON", `{"a":1}`, `{"a":1}`, "{}// x", "", `{"a":1}`, `{"a":1}`, true},
		{"and so is one with nothing but space", `{"a":1}`, `{}`, "\ufeff \n", "", `{"a":1}`, `{"a":1}`, true},
		{"a byte order mark is passed over", `{"a":1}`, `{"a":1}`, "\ufeff{\"a\":2}", "", `{"a":2}`, `{"a":1}`, false},
		{"what is fixed is so the first time", `{"l":"low"}`, none, none, `{"l":"xhigh"}`, `{"l":"xhigh"}`, `{"l":"xhigh"}`, false},
		{"and again, whatever was done inside", `{"l":"low"}`, `{"l":"xhigh"}`, `{"l":"off"}`, `{"l":"xhigh"}`, `{"l":"xhigh"}`, `{"l":"xhigh"}`, false},
		{"and again, where it was removed", `{}`, `{"l":"xhigh"}`, `{}`, `{"l":"xhigh"}`, `{"l":"xhigh"}`, `{"l":"xhigh"}`, false},
		{"no more fixed, it follows the host", `{"l":"low"}`, `{"l":"xhigh"}`, `{"l":"xhigh"}`, "", `{"l":"low"}`, `{"l":"low"}`, false},
		{"no more fixed, and the host has none", `{}`, `{"l":"xhigh"}`, `{"l":"xhigh"}`, "", `{}`, `{}`, false},
		{"fixed to be away", `{"m":{"x":"low"}}`, `{}`, `{"m":{"y":"off"}}`, `{"m":""}`, `{}`, `{}`, false},
		{"no more fixed to be away", `{"m":1}`, `{}`, `{}`, "", `{"m":1}`, `{"m":1}`, false},
	} {
		var fixed map[string]string
		if tc.fixed != "" {
			if err := json.Unmarshal([]byte(tc.fixed), &fixed); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Keys(Input{bytesOf(tc.host), bytesOf(tc.base), bytesOf(tc.mine)}, fixed)
		if err != nil || got.Reseeded != tc.reseeded || got.Kept || !equal(t, got.File, tc.file) || !equal(t, got.Base, tc.wrote) {
			t.Errorf("%s: %v %t\nfile %s, want %s\nbase %s, want %s", tc.what, err, got.Reseeded, got.File, tc.file, got.Base, tc.wrote)
		}
		// What was written is what the next start finds: it changes nothing more.
		again, err := Keys(Input{bytesOf(tc.host), got.Base, got.File}, fixed)
		if err != nil || again.Reseeded || string(again.File) != string(got.File) || string(again.Base) != string(got.Base) {
			t.Errorf("%s, once more: %v %s %s", tc.what, err, again.File, again.Base)
		}
	}
	if _, err := Keys(Input{Host: []byte("[]")}, nil); err == nil {
		t.Error("a host's version that is no object is taken")
	}
}

func equal(t *testing.T, text []byte, want string) bool {
	t.Helper()
	var a, b any
	if err := errors.Join(json.Unmarshal(text, &a), json.Unmarshal([]byte(want), &b)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(a, b)
}

func FuzzKeys(f *testing.F) {
	f.Add(`{"a":1}`, `{"a":2}`, `{"a":3}`)
	f.Add(`{}`, `x`, "\ufeff{}")
	f.Fuzz(func(t *testing.T, host, base, mine string) {
		fixed := map[string]string{"l": "xhigh"}
		got, err := Keys(Input{[]byte(host), []byte(base), []byte(mine)}, fixed)
		if err != nil {
			return // the host's is no object
		}
		var file map[string]json.RawMessage
		if err := json.Unmarshal(got.File, &file); err != nil || string(file["l"]) != `"xhigh"` {
			t.Fatalf("%v %s", err, got.File)
		}
		again, err := Keys(Input{[]byte(host), got.Base, got.File}, fixed)
		if err != nil || string(again.File) != string(got.File) || string(again.Base) != string(got.Base) {
			t.Fatalf("%v\n%s\n%s\n%s\n%s", err, got.File, got.Base, again.File, again.Base)
		}
	})
}
