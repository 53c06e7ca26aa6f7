package session

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
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
