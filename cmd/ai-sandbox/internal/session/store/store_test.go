package store

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

func TestLiveness(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var self Record
	if err := s.Owner(&self); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		edit func(*Record)
		want Liveness
	}{
		{"the owner itself", func(*Record) {}, Alive},
		{"its id, another start time", func(r *Record) { r.Start-- }, Gone},
		{"an id that is free", func(r *Record) { r.PID = cmd.Process.Pid }, Gone},
		{"an earlier boot", func(r *Record) { r.BootID = "other" }, Gone},
		{"another process namespace", func(r *Record) { r.PIDNS = "pid:[1]" }, Unknown},
		{"no boot id", func(r *Record) { r.BootID = "" }, Unknown},
		{"nobody's, this boot", func(r *Record) { r.PID = 0 }, Alive},
	} {
		r := self
		c.edit(&r)
		if got := s.Liveness(r); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestPutAndList(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(Record{ID: "a", Kind: "session"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(Record{ID: "g", Kind: "gate", GatePort: 7}); err != nil {
		t.Fatal(err)
	}
	g, ok, err := s.Gate("g")
	if err != nil || !ok || g.GatePort != 7 {
		t.Errorf("gate %+v %v %v", g, ok, err)
	}
	if _, ok, err := s.Gate("none"); ok || err != nil {
		t.Errorf("a gate that is not there: %v %v", ok, err)
	}
	// A broken record is named and hides no other.
	if err := os.WriteFile(dir+"/session-b.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := s.List()
	if len(list) != 2 || err == nil {
		t.Errorf("list %v, %v", list, err)
	}
}

// What a killed writer has left goes with the next look; what is being written stays.
func TestUnnamedRecords(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(s.dir, unnamed+"1")
	if err := os.WriteFile(left, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := s.create()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := s.List(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was left: %v", err)
	}
	if _, err := os.Stat(f.Name()); err != nil {
		t.Errorf("what is being written: %v", err)
	}
	// Writers and readers at once.
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 200 {
				if err := s.Put(Record{ID: string(rune('a' + i)), Kind: "session"}); err != nil {
					t.Error(err)
				}
				if _, err := s.List(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if list, err := s.List(); err != nil || len(list) != 4 {
		t.Errorf("%d records, %v", len(list), err)
	}
}
