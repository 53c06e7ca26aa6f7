package netfilter

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

func TestParsePacket(t *testing.T) {
	const v4 = "4500003c000040004006" + "0000" + "0a000002" + "c6336414" // to 198.51.100.20
	const v6 = "6000000000280640" + "20010db8000000000000000000000001" + "20010db8000000000000000000000014"
	tcp := func(flags string) string { return "c00101bb" + "0000000000000000" + "50" + flags + "ffff00000000" }
	udp := strings.Replace(v4, "4006", "4011", 1)
	for _, c := range []struct {
		name, hex string
		want      Packet
		ok        bool
	}{
		{"tcp", v4 + tcp("02"), Packet{"tcp", netip.MustParseAddr("198.51.100.20"), 443}, true},
		{"tcp6", v6 + tcp("02"), Packet{"tcp", netip.MustParseAddr("2001:db8::14"), 443}, true},
		{"reset", v4 + tcp("14"), Packet{}, false},
		{"answer", v4 + tcp("12"), Packet{}, false},
		{"udp", udp + "c0010035" + "00080000", Packet{"udp", netip.MustParseAddr("198.51.100.20"), 53}, true},
		{"ping", strings.Replace(v4, "4006", "4001", 1) + "0800", Packet{"icmp", netip.MustParseAddr("198.51.100.20"), 0}, true},
		{"ping6", strings.Replace(v6, "0640", "3a40", 1) + "8000", Packet{"icmp", netip.MustParseAddr("2001:db8::14"), 0}, true},
		{"neighbours", strings.Replace(v6, "0640", "3a40", 1) + "8700", Packet{}, false},
		{"group", strings.Replace(v4, "4006", "4002", 1) + "1600", Packet{}, false},
		{"options", "46" + v4[2:] + "94040000" + tcp("02"), Packet{"tcp", netip.MustParseAddr("198.51.100.20"), 443}, true},
		{"short", v4 + "c001", Packet{}, false},
		{"short head", v4[:30], Packet{}, false},
		{"size", "4f" + v4[2:], Packet{}, false},
		{"no size", "40" + v4[2:] + tcp("02"), Packet{}, false},
		{"short v6", v6[:60], Packet{}, false},
		{"other", "00" + v4, Packet{}, false},
		{"nothing", "", Packet{}, false},
	} {
		b, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := ParsePacket(b); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v %v", c.name, got, ok)
		}
	}
}

// FuzzParsePacket: whatever the sandbox sends, it is read within its bounds.
func FuzzParsePacket(f *testing.F) {
	f.Add([]byte{0x45})
	f.Add([]byte{0x4f, 0, 0})
	f.Fuzz(func(_ *testing.T, b []byte) { ParsePacket(b) })
}
