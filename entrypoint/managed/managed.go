// Package managed decides what becomes of a file that the host has, and that the
// sandbox's own program writes too: at each start the host's version is brought in,
// and what was changed inside stays. For that a copy of what was brought in last
// lies beside the file, the base.
//
// The package is pure, and imports nothing of ours.
package managed

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
)

// Input are the three versions of a file; nil is one that is not there.
type Input struct{ Host, Base, Mine []byte }

// Result is what the file and its base have to be; nil is that there is none.
type Result struct {
	File, Base []byte
	// Kept: the host's version, or its latest change, did not come in, since the
	// file was changed inside; that the host's is gone is a change too. Keys never says it: both sides' changes are in.
	Kept bool
	// Reseeded: what was inside was no JSON object, and is the host's now.
	Reseeded bool
}

// Whole decides for a file that is one thing: changed or removed on the host, one
// that was not touched inside follows; changed inside, it stays; removed inside, it
// is the host's again. A file without a base was made inside.
func Whole(in Input) Result {
	switch {
	case in.Mine == nil:
		return Result{File: in.Host, Base: in.Host}
	case bytes.Equal(in.Mine, in.Base), bytes.Equal(in.Mine, in.Host):
		// The second may be without a base: it is as good as brought in.
		return Result{File: in.Host, Base: in.Host}
	}
	return Result{File: in.Mine, Base: in.Base, Kept: in.Host != nil || in.Base != nil}
}

// Keys decides for a JSON object, for each of its keys alone: changed or removed
// inside, it stays so; untouched, it is what it is on the host, or gone with it; and
// a key that the host never had stays. The base has what the host had when a key was
// brought in last, and keeps that for a key that was changed since, so that the
// change lasts. Without a base, or with one that can't be read, the host's values
// count, and without the file too: who removes it wants the host's.
//
// fixed are the strings that keys have after every start, whatever either side says;
// "" is that the key is not there. in.Host has to be an object, or nil for an
// empty one.
func Keys(in Input, fixed map[string]string) (Result, error) {
	host, err := object(in.Host)
	if err != nil {
		return Result{}, err
	}
	var out Result
	base, err := object(in.Base)
	based := in.Base != nil && err == nil && !blank(in.Base) && in.Mine != nil
	mine, err := object(in.Mine)
	if err != nil || in.Mine != nil && blank(in.Mine) { // as a write that was cut off leaves it
		out.Reseeded, mine, based = true, nil, false
	}
	file, wrote := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for key := range union(host, base, mine) {
		h, b, m := host[key], base[key], mine[key]
		switch {
		case !based && h == nil, based && !same(m, b) && !same(m, h): // made or changed inside
			put(file, key, m)
			if based {
				put(wrote, key, b)
			}
		default:
			put(file, key, h)
			put(wrote, key, h)
		}
	}
	for key, text := range fixed {
		var value json.RawMessage
		if text != "" {
			if value, err = json.Marshal(text); err != nil {
				return Result{}, err
			}
		}
		put(file, key, value)
		put(wrote, key, value)
	}
	out.File, err = encode(file)
	if err != nil {
		return Result{}, err
	}
	out.Base, err = encode(wrote)
	return out, err
}

// put sets a key, or takes it away with nil.
func put(m map[string]json.RawMessage, key string, value json.RawMessage) {
	if value == nil {
		delete(m, key)
		return
	}
	m[key] = value
}

func union(all ...map[string]json.RawMessage) map[string]bool {
	out := map[string]bool{}
	for _, m := range all {
		for key := range m {
			out[key] = true
		}
	}
	return out
}

// same compares values, and not how they are written.
func same(a, b json.RawMessage) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if bytes.Equal(a, b) {
		return true
	}
	// 1.0 is 1: whoever reads and writes the file as JavaScript does says so.
	var va, vb any
	return json.Unmarshal(a, &va) == nil && json.Unmarshal(b, &vb) == nil && reflect.DeepEqual(va, vb)
}

var errNoObject = errors.New("it is not one JSON object")

// blank tells whether there is nothing but space, and maybe a byte order mark.
func blank(text []byte) bool { return len(trim(text)) == 0 }

func trim(text []byte) []byte { return bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff"))) }

// object reads one. Nothing, and nothing but space, is an empty one, and a byte
// order mark is passed over: so does the program that the file is for.
func object(text []byte) (map[string]json.RawMessage, error) {
	text = trim(text)
	if len(text) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	var m map[string]json.RawMessage
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	if _, err := d.Token(); m == nil || !errors.Is(err, io.EOF) {
		return nil, errNoObject
	}
	return m, nil
}

func encode(m map[string]json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(m)
	return b.Bytes(), err
}
