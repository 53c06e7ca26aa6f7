package embedded

import (
	"errors"
	"testing"
	"testing/fstest"
)

func TestFind(t *testing.T) {
	const name = "file/aisb-entrypoint-linux-amd64"
	got, err := find(fstest.MapFS{name: {Data: []byte("program")}}, "amd64")
	if err != nil || string(got) != "program" {
		t.Errorf("got %q, %v", got, err)
	}
	for what, in := range map[string]fstest.MapFS{
		"another architecture": {"file/aisb-entrypoint-linux-arm64": {Data: []byte("program")}},
		"none":                 {"file/README": {Data: []byte("words")}},
		"empty":                {name: {}},
	} {
		if got, err := find(in, "amd64"); !errors.Is(err, ErrNoEntrypoint) {
			t.Errorf("%s: got %q, %v", what, got, err)
		}
	}
}
