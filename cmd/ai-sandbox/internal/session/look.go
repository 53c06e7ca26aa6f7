// Containers that belong to no session: those in which a verb looks into an image.

package session

import (
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/policy"
)

// Claim keeps a record of a container that this process is about to make for itself,
// so that it is reaped if the process is killed. release forgets it again.
func (m *Manager) Claim(container string) (release func() error, err error) {
	rec := store.Record{ID: container, Kind: store.KindLook, Runtime: policy.RuntimePodman, Containers: []string{container}}
	if err := m.Store.Owner(&rec); err != nil {
		return nil, err
	}
	if err := m.Store.Put(rec); err != nil {
		return nil, err
	}
	return func() error { return m.Store.Delete(rec) }, nil
}
