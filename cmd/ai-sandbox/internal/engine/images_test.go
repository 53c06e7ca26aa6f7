package engine

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/policy"
)

// A session that lives uses what the journal says, and any image where that says nothing.
func TestUsedBySessions(t *testing.T) {
	state := t.TempDir()
	st, err := store.Open(filepath.Join(state, "records"))
	if err != nil {
		t.Fatal(err)
	}
	m := &session.Manager{Store: st, StateDir: state}
	const journal = `{"session":"known","sandbox_image":"s1","gate_image":"g1"}` + "\n" + `{"session":"jail"}` + "\n" + `{"session":"gone","sandbox_image":"s2"}` + "\n"
	if err := os.WriteFile(filepath.Join(state, "journal.jsonl"), []byte(journal), 0o600); err != nil {
		t.Fatal(err)
	}
	found := []imagebuild.Found{{ID: "s1"}, {ID: "s2"}, {ID: "g1"}, {ID: "g2"}}
	used := func() map[string][]string {
		t.Helper()
		out := map[string][]string{}
		if err := usedBySessions(m, found, func(id, by string) {
			if id != "" {
				out[id] = append(out[id], by)
			}
		}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	put := func(r store.Record) {
		t.Helper()
		if r.Kind == "session" && r.BootID == "" {
			if err := st.Owner(&r); err != nil {
				t.Fatal(err)
			}
		}
		if err := st.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	put(store.Record{ID: "known", Kind: "session", Runtime: policy.RuntimePodman})
	put(store.Record{ID: "jail", Kind: "session", Runtime: policy.RuntimeLocal})
	put(store.Record{ID: "other", Kind: "session", Runtime: policy.RuntimeLocal})
	put(store.Record{ID: "gone", Kind: "session", Runtime: policy.RuntimePodman, BootID: "another"})
	put(store.Record{ID: "team", Kind: "gate", GateImage: "g2"})
	want := map[string][]string{"s1": {"session known"}, "g1": {"session known"}, "g2": {"gate team"}}
	if got := used(); !reflect.DeepEqual(got, want) {
		t.Errorf("used are %v, and not %v", got, want)
	}
	put(store.Record{ID: "lost", Kind: "session", Runtime: policy.RuntimePodman})
	if got := used(); len(got) != len(found) || got["s2"][0] != "session lost, maybe" {
		t.Errorf("with a session that is in no journal, used are %v", got)
	}
}
