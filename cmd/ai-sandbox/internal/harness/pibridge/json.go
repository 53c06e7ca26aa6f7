// JSON whose objects keep their order: pi takes the first of its providers where
// nothing says which.

package pibridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

type member struct {
	name  string
	value any
}

type object struct{ members []member }

func (o *object) set(name string, value any) {
	for i, m := range o.members {
		if m.name == name {
			o.members[i].value = value
			return
		}
	}
	o.members = append(o.members, member{name, value})
}

func (o *object) get(name string) any {
	if i := slices.IndexFunc(o.members, func(m member) bool { return m.name == name }); i >= 0 {
		return o.members[i].value
	}
	return nil
}

// MarshalJSON is the object with its order.
func (o *object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o.members {
		if i > 0 {
			b.WriteByte(',')
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.WriteString(quoted(m.name))
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func quoted(s string) string {
	out, err := json.Marshal(s)
	if err != nil {
		panic(err) // of a string
	}
	return string(out)
}

// encode can't fail: what it is given was parsed.
func encode(o *object) []byte {
	out, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		panic(err)
	}
	return append(out, '\n')
}

// maxDepth bounds nesting.
const maxDepth = 64

var (
	errNoObject = errors.New("it is not one JSON object")
	errDeep     = errors.New("it is nested too deeply")
)

// parse reads one object. Its errors quote nothing: the file may be another one,
// with keys in it.
func parse(text []byte) (*object, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := next(d, 0)
	if errors.Is(err, errDeep) {
		return nil, err
	}
	o, ok := v.(*object)
	if err != nil || !ok {
		return nil, fmt.Errorf("%w, near byte %d", errNoObject, d.InputOffset())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errNoObject
	}
	return o, nil
}

func next(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		o := &object{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := next(d, depth+1)
			if err != nil {
				return nil, err
			}
			key, ok := name.(string)
			if !ok {
				return nil, errNoObject
			}
			o.set(key, value)
		}
		_, err := d.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			value, err := next(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err := d.Token()
		return list, err
	}
	return t, nil
}

// uncommented is JSON as pi reads it in models.json: without a byte order mark, with
// // comments and commas before a closing bracket taken out.
func uncommented(text []byte) []byte {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			j := i + 1
			for ; j < len(text) && text[j] != '"'; j++ {
				if text[j] == '\\' {
					j++
				}
			}
			j = min(j, len(text)-1)
			out = append(out, text[i:j+1]...)
			i = j
		case c == '/' && i+1 < len(text) && text[i+1] == '/':
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case c == ']' || c == '}':
			if end := bytes.TrimRight(out, " \t\r\n"); bytes.HasSuffix(end, []byte(",")) {
				out = end[:len(end)-1]
			}
			out = append(out, c)
		default:
			out = append(out, c)
		}
	}
	return out
}
