// The DNS server.

package internet

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// zone is what the names of the tests lead to, with everything below them. Any
// other name below "test" does not exist.
var zone = map[string]string{
	"ok.test":      Allowed,
	"no.test":      Refused,
	"private.test": Private,
	"meta.test":    Metadata,
	"loop.test":    "127.0.0.1",
	"map.test":     "::ffff:127.0.0.1",
	"loop6.test":   "::1",
	"ula.test":     "fd00::10",
	"shared.test":  "100.64.0.1",
}

func (in *Internet) startDNS() error {
	udp, err := net.ListenPacket("udp", DNS+":53")
	if err != nil {
		return fmt.Errorf("start the DNS server: %w", err)
	}
	tcp, err := net.Listen("tcp", DNS+":53")
	if err != nil {
		_ = udp.Close() // the error that matters is the other one
		return fmt.Errorf("start the DNS server: %w", err)
	}
	in.onClose(udp.Close)
	in.onClose(tcp.Close)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			query := append([]byte(nil), buf[:n]...)
			go func() {
				if a := in.resolve(query, "udp"); a != nil {
					_, _ = udp.WriteTo(a, from) // a lost answer is asked for again
				}
			}()
		}
	}()
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if query, err := readTCP(c); err == nil {
					if a := in.resolve(query, "tcp"); a != nil {
						_ = writeTCP(c, a) // a lost answer is asked for again
					}
				}
			}()
		}
	}()
	return nil
}

// resolve records a question and answers it.
func (in *Internet) resolve(query []byte, network string) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	in.mu.Lock()
	in.queries = append(in.queries, name+" "+strings.TrimPrefix(q.Type.String(), "Type"))
	in.mu.Unlock()
	if name != "test" && !strings.HasSuffix(name, ".test") && in.upstream != "" {
		return forward(query, network, net.JoinHostPort(in.upstream, "53"))
	}
	msg := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: true, RecursionAvailable: true, RCode: dnsmessage.RCodeNameError},
		Questions: []dnsmessage.Question{q},
	}
	for suffix := name; suffix != ""; _, suffix, _ = strings.Cut(suffix, ".") {
		s, ok := zone[suffix]
		if !ok {
			continue
		}
		msg.RCode = dnsmessage.RCodeSuccess
		var body dnsmessage.ResourceBody
		switch ip := netip.MustParseAddr(s); {
		case ip.Is4() && q.Type == dnsmessage.TypeA:
			body = &dnsmessage.AResource{A: ip.As4()}
		case ip.Is6() && q.Type == dnsmessage.TypeAAAA:
			body = &dnsmessage.AAAAResource{AAAA: ip.As16()}
		}
		if body != nil {
			msg.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}, Body: body}}
		}
		break
	}
	out, err := msg.Pack()
	if err != nil {
		return nil
	}
	return out
}

// forward asks the real name server.
func forward(query []byte, network, server string) []byte {
	c, err := net.DialTimeout(network, server, 5*time.Second)
	if err != nil {
		return nil
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil
	}
	if network == "tcp" {
		if writeTCP(c, query) != nil {
			return nil
		}
		a, err := readTCP(c)
		if err != nil {
			return nil
		}
		return a
	}
	if _, err := c.Write(query); err != nil {
		return nil
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

func readTCP(r io.Reader) ([]byte, error) {
	var n [2]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(n[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

func writeTCP(w io.Writer, msg []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...))
	return err
}
