// Published ports: what comes in from outside.
//
// Where a network leads in (mode gated), Firewall.Published lets it through. Where
// none does, the host listens and the entrypoint connects: over one socket of type
// SOCK_SEQPACKET, whose name is gone before the command starts, the host asks for a
// port with a Call and gets a Reply with the connected socket's descriptor
// (unix(7), SCM_RIGHTS). What is handed over is made inside: nothing of the host's
// ever comes in.

package spec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
)

// PublishName is the socket's name in the control directory.
const PublishName = "publish"

// A Publish is the way in where there is no network: the ports that may be asked
// for, and what the entrypoint says first on the socket.
type Publish struct {
	Ports []uint16 `json:"ports"`
	Hello string   `json:"hello"`
}

// MaxCalls bounds the connections that the host asks for at a time.
const MaxCalls = 128

// A Call asks for a connection to a port inside. IDs are the host's.
type Call struct {
	ID   uint32
	Port uint16
}

// A Reply tells what became of a Call: a descriptor goes with it where Errno is 0.
type Reply struct {
	ID    uint32
	Errno uint32 // errno(3)
}

const (
	callSize  = 6
	replySize = 8
	// PublishMessage is more than any message of the socket has, in bytes.
	PublishMessage = 64
)

// Bytes is the message.
func (c Call) Bytes() []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(nil, c.ID), c.Port)
}

// ParseCall is the reverse of Bytes.
func ParseCall(b []byte) (Call, error) {
	if len(b) != callSize {
		return Call{}, fmt.Errorf("a call of %d bytes", len(b))
	}
	return Call{ID: binary.BigEndian.Uint32(b), Port: binary.BigEndian.Uint16(b[4:])}, nil
}

// Bytes is the message.
func (r Reply) Bytes() []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, r.ID), r.Errno)
}

// ParseReply is the reverse of Bytes.
func ParseReply(b []byte) (Reply, error) {
	if len(b) != replySize {
		return Reply{}, fmt.Errorf("a reply of %d bytes", len(b))
	}
	return Reply{ID: binary.BigEndian.Uint32(b), Errno: binary.BigEndian.Uint32(b[4:])}, nil
}

// checkPublish looks at the way in.
func checkPublish(s Spec) error {
	if err := checkPublished(s.Firewall.Published); err != nil {
		return fmt.Errorf("firewall: %w", err)
	}
	if len(s.Firewall.Published) > 0 && s.Firewall.Mode != ModeGated {
		return fmt.Errorf("firewall: mode %s lets nothing in", s.Firewall.Mode)
	}
	if s.Publish == nil {
		return nil
	}
	switch err := checkPublished(s.Publish.Ports); {
	case err != nil:
		return err
	case s.Firewall.Mode != ModeUnix:
		return fmt.Errorf("publish: the socket is for mode %s", ModeUnix)
	case len(s.Publish.Ports) == 0:
		return errors.New("publish: no ports")
	case s.Relay != nil && slices.Contains(s.Publish.Ports, s.Relay.Port):
		return fmt.Errorf("publish: port %d is the way to the gate", s.Relay.Port)
	case s.Publish.Hello == "" || len(s.Publish.Hello) >= PublishMessage:
		return errors.New("publish: no hello")
	case !slices.Contains(s.Mounts, Dir):
		return fmt.Errorf("publish: %s is not mounted", path.Join(Dir, PublishName))
	}
	return nil
}

// checkPublished refuses a list of ports that is not one.
func checkPublished(ports []uint16) error {
	for i, p := range ports {
		switch {
		case p == 0:
			return errors.New("port 0 is published")
		case slices.Contains(ports[:i], p):
			return fmt.Errorf("port %d is published twice", p)
		}
	}
	return nil
}
