// What a session and a gate that it shares say to one another, over the gate's socket.

package spec

import (
	"errors"
	"fmt"
)

const (
	// GateSocket is the socket's name in the directory of the gate's logs.
	GateSocket = "gate.sock"
	// GateSessions is the directory with a directory for each session, by its id, in
	// those of the gate's configuration and of its logs.
	GateSessions = "s"
)

// gateVersion is that of GateCall and what follows it.
const gateVersion = 1

// A GateCall is the first frame to a gate that sessions share. Two squids run for Session
// from then on, by front.conf and peek.conf of its directory, until the connection ends.
// Without a session the call is about the gate's own squids. The answer is a ToHost:
// Started or Refused, and Refused later, when the squids are lost. What comes then is
// ToGuest's Reload, for those squids.
type GateCall struct {
	Version int    `json:"version"`
	Session string `json:"session,omitempty"`
}

// NewGateCall is one of this version.
func NewGateCall(session string) GateCall { return GateCall{gateVersion, session} }

// Check refuses what is no call. The id becomes the name of a directory.
func (c GateCall) Check() error {
	if c.Version != gateVersion {
		return fmt.Errorf("the gate knows version %d of its messages and not %d: it was made by another ai-sandbox", gateVersion, c.Version)
	}
	if len(c.Session) > 64 {
		return errors.New("a session's id is too long")
	}
	for _, r := range c.Session {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return errors.New("a session's id is of other letters than a-z, 0-9 and -")
		}
	}
	return nil
}
