package session

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"ai-sandbox/policy"
)

func TestJournal(t *testing.T) {
	m := &Manager{StateDir: t.TempDir()}
	if _, ok, err := m.Journaled("0123456789ab"); ok || err != nil {
		t.Errorf("before the first: %v, %v", ok, err)
	}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if err := m.add(Entry{Session: fmt.Sprintf("%012d", i), Started: time.Unix(1, 0).UTC(), GateImage: fmt.Sprint("image", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range 50 {
		if e, ok, err := m.Journaled(fmt.Sprintf("%012d", i)); !ok || err != nil || e.GateImage != fmt.Sprint("image", i) {
			t.Errorf("%d: %+v, %v, %v", i, e, ok, err)
		}
	}
	for _, id := range []string{"", "0", "image1", "999999999999"} {
		if _, ok, err := m.Journaled(id); ok || err != nil {
			t.Errorf("%q: %v, %v", id, ok, err)
		}
	}
	// A line that was cut short hides no other.
	f, err := os.OpenFile(m.journalPath(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"session": "aaaaaaaaaaaa", "sta` + "\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.add(Entry{Session: "bbbbbbbbbbbb"}); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := m.Journaled("bbbbbbbbbbbb"); !ok || err != nil {
		t.Errorf("behind a broken line: %v, %v", ok, err)
	}
	// Put aside when it is large, and still read.
	if err := os.WriteFile(m.journalPath(), []byte(`{"session":"cccccccccccc"}`+"\n"+strings.Repeat(strings.Repeat("x", 1000)+"\n", maxJournal/1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.add(Entry{Session: "dddddddddddd"}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(m.journalPath())
	if err != nil || info.Size() > 1000 {
		t.Errorf("the journal has %d bytes, %v", info.Size(), err)
	}
	for _, id := range []string{"cccccccccccc", "dddddddddddd"} {
		if _, ok, err := m.Journaled(id); !ok || err != nil {
			t.Errorf("%s: %v, %v", id, ok, err)
		}
	}
}

// Of two that find the journal too large at once, the second leaves the new one alone.
func TestJournalPutAsideOnce(t *testing.T) {
	m := &Manager{StateDir: t.TempDir()}
	path := m.journalPath()
	add := func(id string) {
		t.Helper()
		if err := m.add(Entry{Session: id}); err != nil {
			t.Fatal(err)
		}
	}
	add("aaaaaaaaaaaa")
	var opened [2]*os.File
	var infos [2]os.FileInfo
	for i := range opened {
		var err error
		if opened[i], err = os.Open(path); err != nil {
			t.Fatal(err)
		}
		if infos[i], err = opened[i].Stat(); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range []string{"bbbbbbbbbbbb", "cccccccccccc"} {
		if err := errors.Join(putAside(opened[i], infos[i], path), opened[i].Close()); err != nil {
			t.Fatal(err)
		}
		add(id)
	}
	for _, id := range []string{"aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"} {
		if _, ok, err := m.Journaled(id); !ok || err != nil {
			t.Errorf("%s is lost: %v", id, err)
		}
	}
}

// A session is in the journal before it has a record: whoever sees that it lives knows
// what it stands on.
func TestJournalBeforeRecord(t *testing.T) {
	e := newEnv(t, nil)
	if err := os.RemoveAll(e.records); err != nil {
		t.Fatal(err)
	}
	if _, err := e.run(t, policy.NetNone); err == nil || !strings.Contains(err.Error(), "write the record") {
		t.Fatalf("without a place for records: %v", err)
	}
	text, err := os.ReadFile(e.m.journalPath())
	if err != nil || strings.Count(string(text), "\n") != 1 {
		t.Errorf("the journal has %q, %v", text, err)
	}
}
