package session

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/policy"
)

// A port that is held is nobody else's to hold, and who reuses addresses, as squid does
// and Go, can listen at it.
func TestHoldPorts(t *testing.T) {
	ports, release, err := holdPorts(2, func(uint16) bool { return false })
	if err != nil || ports[0] == ports[1] {
		t.Fatalf("%v, %v", ports, err)
	}
	defer release()
	again := func() error {
		_, free, err := holdPorts(1, func(p uint16) bool { return p != ports[0] })
		if err == nil {
			free()
		}
		return err
	}
	if again() == nil {
		t.Error("held twice")
	}
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", ports[0]))
	if err != nil {
		t.Fatal(err)
	}
	if again() == nil {
		t.Error("held while somebody listens")
	}
	l.Close()
	release()
	if err := again(); err != nil {
		t.Errorf("let go: %v", err)
	}
}

// Whatever was changed for one session is gone when its gate gets another list.
func TestSteeredToLists(t *testing.T) {
	n := policy.Net{Mode: policy.NetGated, GateName: "work", Allow: parsed(t, "a.test own.test")}
	got, err := Steered(n, Steering{Lists: &Lists{Gate: "work", Allow: parsed(t, "b.test a.test"), AllowPrivate: parsed(t, "127.0.0.1:1")}})
	if err != nil || !slices.Equal(texts(got.Allow), []string{"a.test", "b.test"}) || !slices.Equal(texts(got.AllowPrivate), []string{"127.0.0.1:1"}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Steered(n, Steering{Lists: &Lists{Allow: []policy.Entry{{}}}}); err == nil {
		t.Error("an entry that is none")
	}
	added, removed := listDiff(store.Record{Allow: []string{"a.test", "b.test"}, AllowPrivate: []string{"c.test"}}, []string{"a.test", "c.test"}, nil)
	if strings.Join(added, " ") != "c.test" || strings.Join(removed, " ") != "b.test c.test (private)" {
		t.Errorf("%q, %q", added, removed)
	}
}
