package entrypoint

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

func TestLoopbackListeners(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	const tail = " 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0\n"
	const (
		loop4, any4, addr4 = "0100007F", "00000000", "020200C0"
		loop6, any6        = "00000000000000000000000001000000", "00000000000000000000000000000000"
		mapped             = "0000000000000000FFFF00000100007F"
	)
	line := func(addr string, port int, state string) string {
		return fmt.Sprintf("   0: %s:%04X %s:0000 %s%s", addr, port, any4, state, tail)
	}
	for name, tc := range map[string]struct {
		v4, v6 string
		want   map[uint16]bool
	}{
		"nothing":          {"", "", map[uint16]bool{}},
		"loopback":         {line(loop4, 3000, "0A"), "", map[uint16]bool{3000: true}},
		"loopback, IPv6":   {"", line(loop6, 3000, "0A"), map[uint16]bool{3000: true}},
		"both":             {line(loop4, 3000, "0A"), line(loop6, 3000, "0A"), map[uint16]bool{3000: true}},
		"mapped":           {"", line(mapped, 3000, "0A"), map[uint16]bool{3000: true}},
		"every address":    {line(any4, 3000, "0A"), "", map[uint16]bool{3000: false}},
		"IPv6 too":         {line(loop4, 3000, "0A"), line(any6, 3000, "0A"), map[uint16]bool{3000: false}},
		"either order":     {line(addr4, 3000, "0A") + line(loop4, 3000, "0A"), "", map[uint16]bool{3000: false}},
		"a connection":     {line(loop4, 3000, "01"), "", map[uint16]bool{}},
		"another port":     {line(loop4, 3001, "0A"), "", map[uint16]bool{}},
		"two":              {line(loop4, 3000, "0A") + line(any4, 5173, "0A"), "", map[uint16]bool{3000: true, 5173: false}},
		"what is no table": {"x\n0: zz:0BB8 y 0A\n0: 01:0BB8 y 0A\n0: 0100007F y 0A\n", "\x00", map[uint16]bool{}},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"tcp": tc.v4, "tcp6": tc.v6} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(head+text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := loopbackListeners(dir, []uint16{3000, 5173}); !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	// The kernel's own table.
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := netip.MustParseAddrPort(l.Addr().String()).Port()
	if got := loopbackListeners("/proc/self/net", []uint16{port}); !maps.Equal(got, map[uint16]bool{port: true}) {
		t.Errorf("the kernel's: %v", got)
	}
}

// Only the ports that are published are connected to, at either loopback address,
// and what is handed out is that connection.
func TestDoor(t *testing.T) {
	four, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer four.Close()
	six, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer six.Close()
	other, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	portOf := func(l net.Listener) uint16 { return netip.MustParseAddrPort(l.Addr().String()).Port() }
	gone, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := portOf(gone)
	gone.Close()
	host, inside := pair(t)
	d := &door{conn: inside, ports: []uint16{portOf(four), portOf(six), nobody}}
	go d.serve()
	for _, tc := range []struct {
		port  uint16
		errno unix.Errno
		at    net.Listener
	}{{portOf(four), 0, four}, {portOf(six), 0, six}, {portOf(other), unix.EACCES, nil}, {nobody, unix.ECONNREFUSED, nil}} {
		if _, err := host.Write(spec.Call{ID: uint32(tc.port), Port: tc.port}.Bytes()); err != nil {
			t.Fatal(err)
		}
		buf, oob := make([]byte, spec.PublishMessage), make([]byte, unix.CmsgSpace(4*4))
		n, oobn, _, _, err := host.ReadMsgUnix(buf, oob)
		if err != nil {
			t.Fatal(err)
		}
		r, err := spec.ParseReply(buf[:n])
		if err != nil || r.ID != uint32(tc.port) || unix.Errno(r.Errno) != tc.errno || (oobn > 0) != (tc.errno == 0) {
			t.Errorf("port %d: %+v with %d bytes beside it, %v", tc.port, r, oobn, err)
		}
		if oobn == 0 {
			continue
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			t.Fatal(err)
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(fds) != 1 {
			t.Fatalf("%v, %v", fds, err)
		}
		c, err := tc.at.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fds[0], []byte("x")); err != nil {
			t.Error(err)
		}
		unix.Close(fds[0]) // the last one
		if text, err := io.ReadAll(c); err != nil || string(text) != "x" {
			t.Errorf("%q, %v", text, err)
		}
		c.Close()
	}
	// What makes no sense ends it.
	if _, err := host.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	inside.Close()
}

// pair is two ends of a socket as the host and the entrypoint have it.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		out[i] = c.(*net.UnixConn)
		t.Cleanup(func() { out[i].Close() })
	}
	return out[0], out[1]
}
