// Telling the host of packets past the gate, which the kernel refused. The log is open
// since before the drop.

package entrypoint

import (
	"errors"
	"sync"
	"time"

	"ai-sandbox/entrypoint/netfilter"
	"ai-sandbox/entrypoint/spec"
)

// tellTime is between two frames about refused packets.
const tellTime = 200 * time.Millisecond

// A blocked is what is known of refused packets and not told yet.
type blocked struct {
	log  *netfilter.Log
	send func(spec.ToHost) error

	mu      sync.Mutex
	seen    map[netfilter.Packet]bool
	pending map[netfilter.Packet]int
	more    int
}

// watch counts what the log tells, until it ends.
func (b *blocked) watch() {
	go func() {
		for range time.Tick(tellTime) {
			if b.flush() != nil {
				return // the host is gone, and soon so are we
			}
		}
	}()
	for {
		err := b.log.Read(b.add)
		if errors.Is(err, netfilter.ErrLost) {
			b.lost()
		} else if err != nil {
			return
		}
	}
}

// lost counts what the kernel did not tell: some packets, as one.
func (b *blocked) lost() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.more++
}

func (b *blocked) add(list []netfilter.Packet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen, b.pending = map[netfilter.Packet]bool{}, map[netfilter.Packet]int{}
	}
	for _, p := range list {
		if !b.seen[p] && len(b.seen) >= spec.MaxBlocked {
			b.more++
			continue
		}
		b.seen[p] = true
		b.pending[p]++
	}
}

// last tells all that there is, before the end is told.
func (b *blocked) last() {
	if b == nil {
		return
	}
	// A process that has ended has had its packets refused, and so told.
	if err := b.log.Rest(b.add); err != nil {
		b.lost()
	}
	_ = b.flush() // a host that is gone has no use for it
}

// flush tells what was counted since the last time.
func (b *blocked) flush() error {
	b.mu.Lock()
	var out []spec.Blocked
	for p, n := range b.pending {
		out = append(out, spec.Blocked{Proto: p.Proto, Addr: p.Dst, Port: p.Port, Count: n})
	}
	if b.more > 0 {
		out = append(out, spec.Blocked{Count: b.more})
	}
	clear(b.pending)
	b.more = 0
	b.mu.Unlock()
	if len(out) == 0 {
		return nil
	}
	return b.send(spec.ToHost{Blocked: out})
}
