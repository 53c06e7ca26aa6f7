// Reading the TLS hello at the start of a tunnel. Nothing is decrypted: the hello
// is open, and the server name in it is what the client says where it goes. Pure.

package builtin

import "encoding/binary"

// maxHello bounds what is read for a hello, in bytes. Real ones, with the keys
// of today's hybrid exchanges, stay under 4 KiB.
const maxHello = 32 << 10

// A verdict says what the first bytes of a tunnel are.
type verdict int

const (
	more     verdict = iota // too few to tell
	notTLS                  // some other protocol
	mangled                 // it begins as TLS and is no hello that can be read in one way
	isHello                 // a hello with a server name
	nameless                // a hello without one
)

// sniff tells what b, the first bytes of a tunnel, are. The name is as it came.
//
// A hello that a server may read differently is mangled: with bytes too many or
// too few anywhere, with an extension twice, with more names than one, or spread
// over records of no content (RFC 8446, sections 4.1.2, 4.2 and 5.1; RFC 6066,
// section 3).
func sniff(b []byte) (verdict, string) {
	const handshake, clientHello = 22, 1
	if len(b) == 0 {
		return more, ""
	}
	if b[0] != handshake {
		return notTLS, ""
	}
	// No other protocol is known to begin with this byte. The version behind
	// it is 3.x for all of SSL 3 and TLS, and some servers do not look at it.
	// The hello may be spread over several records.
	var msg []byte
	for rest := b; ; {
		if len(rest) < 5 {
			return tooShort(b)
		}
		n := int(binary.BigEndian.Uint16(rest[3:]))
		if rest[0] != handshake || rest[1] != 3 || n == 0 || n > 1<<14 {
			return mangled, ""
		}
		part := rest[5:min(5+n, len(rest))]
		msg = append(msg, part...)
		if len(msg) > 0 && msg[0] != clientHello {
			return mangled, ""
		}
		if len(msg) >= 4 {
			want := 4 + int(msg[1])<<16 + int(binary.BigEndian.Uint16(msg[2:]))
			switch {
			case want > maxHello:
				return mangled, ""
			case len(msg) >= want && len(part) == n:
				if len(msg) > want {
					return mangled, "" // something else follows in the same record
				}
				return parseHello(msg[4:])
			}
		}
		if len(part) < n {
			return tooShort(b)
		}
		rest = rest[5+n:]
	}
}

// tooShort is for a hello that is not whole yet.
func tooShort(b []byte) (verdict, string) {
	if len(b) >= maxHello {
		return mangled, ""
	}
	return more, ""
}

// A cursor reads a message's vectors. After the first that does not fit, it is
// bad and empty.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if n > len(c.b) {
		c.b, c.bad = nil, true
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

// vector takes one whose length is written in size bytes.
func (c *cursor) vector(size int) cursor {
	n := 0
	for _, x := range c.take(size) {
		n = n<<8 | int(x)
	}
	b := c.take(n)
	return cursor{b: b, bad: c.bad}
}

func (c *cursor) uint16() uint16 {
	if b := c.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

// parseHello reads a ClientHello without its handshake header.
func parseHello(b []byte) (verdict, string) {
	const serverName, hostName = 0, 0
	c := cursor{b: b}
	c.take(2 + 32) // version, random
	session := c.vector(1)
	suites := c.vector(2)
	compression := c.vector(1)
	if c.bad || len(session.b) > 32 || len(suites.b) < 2 || len(suites.b)%2 != 0 || len(compression.b) == 0 {
		return mangled, ""
	}
	if len(c.b) == 0 {
		return nameless, "" // before TLS 1.2 a hello could end here
	}
	all := c.vector(2)
	if c.bad || len(c.b) > 0 {
		return mangled, ""
	}
	seen := map[uint16]bool{}
	name, found := "", false
	for len(all.b) > 0 {
		kind := all.uint16()
		body := all.vector(2)
		if all.bad || body.bad || seen[kind] {
			return mangled, ""
		}
		seen[kind] = true
		if kind != serverName {
			continue
		}
		names := body.vector(2)
		entryKind := names.take(1)
		entry := names.vector(2)
		if body.bad || len(body.b) > 0 || names.bad || entry.bad || len(names.b) > 0 || entryKind[0] != hostName || len(entry.b) == 0 {
			return mangled, ""
		}
		name, found = string(entry.b), true
	}
	if !found {
		return nameless, ""
	}
	return isHello, name
}
