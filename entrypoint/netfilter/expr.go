// One rule as the kernel's expressions: the same ones, in the same order, that
// nft itself makes of the rule's text, so that its listing shows that text.

package netfilter

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/firewall"
)

// Offsets in the IPv4 and TCP headers.
const (
	ipSrc, ipDst, ipLen     = 12, 16, 4
	portSrc, portDst, portN = 0, 2, 2
)

// ctReply is IP_CT_DIR_REPLY.
const ctReply = 1

// icmpxPortUnreach is NFT_REJECT_ICMPX_PORT_UNREACH.
const icmpxPortUnreach = 1

func expressions(r firewall.Rule) ([]expr.Any, error) {
	var out []expr.Any
	eq := func(load expr.Any, want []byte) {
		out = append(out, load, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: want})
	}
	meta := func(k expr.MetaKey) expr.Any { return &expr.Meta{Key: k, Register: 1} }
	addr := func(a netip.Addr, offset uint32) error {
		if !a.IsValid() {
			return nil
		}
		if !a.Is4() {
			return fmt.Errorf("rule %q: not an IPv4 address", r)
		}
		eq(meta(expr.MetaKeyNFPROTO), []byte{unix.NFPROTO_IPV4})
		eq(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: ipLen}, a.AsSlice())
		return nil
	}
	port := func(p uint16, offset uint32) {
		if p != 0 {
			eq(meta(expr.MetaKeyL4PROTO), []byte{unix.IPPROTO_TCP})
			eq(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: portN},
				binary.BigEndian.AppendUint16(nil, p))
		}
	}

	if r.InIface != "" {
		eq(meta(expr.MetaKeyIIFNAME), ifname(r.InIface))
	}
	if r.OutIface != "" {
		eq(meta(expr.MetaKeyOIFNAME), ifname(r.OutIface))
	}
	if err := addr(r.Src, ipSrc); err != nil {
		return nil, err
	}
	if err := addr(r.Dst, ipDst); err != nil {
		return nil, err
	}
	port(r.TCPSrc, portSrc)
	port(r.TCPDst, portDst)
	if r.TCP {
		eq(meta(expr.MetaKeyL4PROTO), []byte{unix.IPPROTO_TCP})
	}
	states := uint32(0)
	if r.Established || r.Answer || r.Begun {
		states = expr.CtStateBitESTABLISHED
	}
	if r.Begun {
		states |= expr.CtStateBitNEW
	}
	if states != 0 {
		// Conntrack's state is a number of the host's byte order.
		mask := binary.NativeEndian.AppendUint32(nil, states)
		out = append(out,
			&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)})
	}
	if r.Answer {
		eq(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, []byte{ctReply})
	}
	if r.Counter {
		out = append(out, &expr.Counter{})
	}
	if r.Log {
		out = append(out, &expr.Log{Key: 1 << unix.NFTA_LOG_GROUP, Group: firewall.LogGroup})
	}
	switch r.Verdict {
	case firewall.Accept:
		out = append(out, &expr.Verdict{Kind: expr.VerdictAccept})
	case firewall.Reject:
		out = append(out, &expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: icmpxPortUnreach})
	case firewall.Reset:
		out = append(out, &expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
	default:
		return nil, fmt.Errorf("rule %q: unknown verdict", r)
	}
	return out, nil
}

// comment is a rule's comment as nft writes it, or nil.
func comment(r firewall.Rule) []byte {
	if r.Comment == "" {
		return nil
	}
	return userdata.AppendString(nil, userdata.TypeComment, r.Comment)
}

func ifname(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}
