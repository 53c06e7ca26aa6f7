// Published ports in a session: who listens, what the user is told, and what the
// gate keeps clear of.

package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"ai-sandbox/cmd/ai-sandbox/internal/publish"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// A Published is a port inside that is reached from outside.
type Published struct {
	policy.Publish
	// LoopbackOnly: the server inside listened on the loopback device alone, where
	// what is published does not get.
	LoopbackOnly bool `json:"loopback_only,omitempty"`
}

// publish decides the ports that were left open, and listens where no network
// leads in: from now on nobody else can take them. Where pasta listens, they are
// free until it does.
func (r *run) publish() (err error) {
	list := r.req.Policy.Publish
	if len(list) == 0 {
		return nil
	}
	if r.req.Policy.Net.Mode == policy.NetUnix {
		socket, err := socketPath(filepath.Join(r.ctl.dir, spec.PublishName))
		if err != nil {
			return err
		}
		r.hello = nonce()
		if r.inward, err = publish.Listen(list, socket, r.hello, os.Getuid()); err != nil {
			return err
		}
		r.undo.push("end the published ports", func(context.Context) error { return r.inward.Close() })
		list = r.inward.List()
	} else if list, err = publish.Pick(list); err != nil {
		return err
	}
	r.req.Policy.Publish = list
	for _, p := range list {
		r.report.Published = append(r.report.Published, Published{Publish: p})
	}
	return nil
}

// taken tells whether a port of the host's is published.
func (r *run) taken(port uint16) bool {
	return slices.ContainsFunc(r.req.Policy.Publish, func(p policy.Publish) bool { return p.HostPort == port })
}

// published lets connections in where this process listens, and says what is
// published.
func (r *run) published() {
	if r.inward != nil {
		r.inward.Serve()
	}
	for _, p := range r.req.Policy.Publish {
		r.m.Say("published http://%s -> %d inside", p.Host(), p.Port)
	}
}

// loopbackOnly says once why a published port can't be reached.
func (r *run) loopbackOnly(port uint16) {
	said := false
	for i, p := range r.report.Published {
		if p.Port != port || p.LoopbackOnly {
			continue
		}
		r.report.Published[i].LoopbackOnly = true
		if !said {
			if r.req.Terminal != nil { // which is raw, and shows something else
				fmt.Fprint(r.req.Streams.Stderr, "\r\n")
				defer fmt.Fprint(r.req.Streams.Stderr, "\r")
			}
			r.m.Say("port %d: the server inside listens on 127.0.0.1 only, and is not reached; start it with --host 0.0.0.0", port)
		}
		said = true
	}
}

// Inside are the ports inside, each once.
func Inside(list []policy.Publish) []uint16 {
	var out []uint16
	for _, p := range list {
		out = append(out, p.Port)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
