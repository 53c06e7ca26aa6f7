//go:build squid

// What the gate does not stop: each residual risk of docs/threat-model.md, as it
// really happens. A test that goes red here is a risk that is gone, and then the
// document has to change.

package gate_test

import (
	"bufio"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/gate"
	"ai-sandbox/gate/gatetest"
	"ai-sandbox/policy"
)

// tunnel opens one through the gate.
func tunnel(t *testing.T, addr, target string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("CONNECT %s: %v %v", target, resp, err)
	}
	return c
}

// refused makes sure that the gate refuses a name that is asked for openly.
func refused(t *testing.T, addr, name string) {
	t.Helper()
	r := gatetest.Row{Send: "CONNECT " + name + ":443 HTTP/1.1\r\nHost: " + name + ":443\r\n\r\n", Status: http.StatusForbidden}
	if status, got, _ := r.Exchange(addr); status != http.StatusForbidden {
		t.Fatalf("%s is not refused: %d %s", name, status, got)
	}
}

// TestForgedHost: inside a connection to a listed host, a request may name any
// other host of the same server.
func TestForgedHost(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	g := start(t, gate.Config{Allow: gatetest.Allow})
	refused(t, g.addr, "no.test")
	w.Reset()
	c := tls.Client(tunnel(t, g.addr, "ok.test:443"), &tls.Config{InsecureSkipVerify: true, ServerName: "ok.test"})
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: no.test\r\nConnection: close\r\n\r\n")
	got, _ := io.ReadAll(c)
	if !strings.Contains(string(got), "host=no.test") {
		t.Errorf("the far server was not asked for no.test: %q, hits %+v", got, w.Hits())
	}
}

// TestDataLeavesThroughAllowedHost: what an allowed host takes, it gets.
func TestDataLeavesThroughAllowedHost(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	g := start(t, gate.Config{Allow: gatetest.Allow})
	w.Reset()
	c := tls.Client(tunnel(t, g.addr, "ok.test:443"), &tls.Config{InsecureSkipVerify: true, ServerName: "ok.test"})
	io.WriteString(c, "POST /paste HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 13\r\nConnection: close\r\n\r\nCANARY-SOURCE")
	io.Copy(io.Discard, c)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if h := w.Hits(); len(h) > 0 && strings.Contains(h[0].Data, "CANARY-SOURCE") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the far server saw %+v", w.Hits())
		}
	}
}

// echConfig is a key of a server that takes encrypted hellos, and what its
// clients get to know (RFC 9849, section 4).
func echConfig(t *testing.T, publicName string) (tls.EncryptedClientHelloKey, []byte) {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pub := key.PublicKey().Bytes()
	body := []byte{1, 0, 0x20} // id, KEM: X25519
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(pub))), pub...)
	body = append(body, 0, 4, 0, 1, 0, 1) // HKDF-SHA256 with AES-128-GCM
	body = append(body, 0, byte(len(publicName)))
	body = append(append(body, publicName...), 0, 0)
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body)))
	config = append(config, body...)
	list := append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
	return tls.EncryptedClientHelloKey{Config: config, PrivateKey: key.Bytes()}, list
}

// TestEncryptedHello: with ECH the gate sees the outer name, and the server the
// inner one. The outer one has to be listed.
func TestEncryptedHello(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	w.Set("ech.wild.test", "198.51.100.10")
	pem, err := gate.Cert(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pem, pem)
	if err != nil {
		t.Fatal(err)
	}
	allow, err := policy.ParseEntries([]string{"ech.wild.test:9443"})
	if err != nil {
		t.Fatal(err)
	}
	key, list := echConfig(t, "ech.wild.test")
	l, err := tls.Listen("tcp", "198.51.100.10:9443", &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, EncryptedClientHelloKeys: []tls.EncryptedClientHelloKey{key},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	names := make(chan string, 4)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if s := c.(*tls.Conn); s.Handshake() == nil {
				names <- fmt.Sprintf("%s ech=%v", s.ConnectionState().ServerName, s.ConnectionState().ECHAccepted)
			}
			c.Close()
		}
	}()
	g := start(t, gate.Config{Allow: allow})
	hello := func(conf *tls.Config) error {
		conf.InsecureSkipVerify, conf.MinVersion = true, tls.VersionTLS13
		return tls.Client(tunnel(t, g.addr, "ech.wild.test:9443"), conf).Handshake()
	}
	if err := hello(&tls.Config{ServerName: "no.test"}); err == nil {
		t.Error("an open hello for no.test passes")
	}
	if err := hello(&tls.Config{ServerName: "no.test", EncryptedClientHelloConfigList: list}); err != nil {
		t.Fatalf("the encrypted hello: %v", err)
	}
	if got := <-names; got != "no.test ech=true" {
		t.Errorf("the far server served %q", got)
	}
}

// TestOtherUserReachesTheGate: whoever can connect to the host's loopback can
// use a session's gate, for the hosts on its list.
func TestOtherUserReachesTheGate(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	g := start(t, gate.Config{Allow: gatetest.Allow})
	_, port, err := net.SplitHostPort(g.addr)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(name string) string {
		cmd := exec.Command("bash", "-c", `exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET http://%s/ HTTP/1.0\r\n\r\n' "$2" >&3 && cat <&3; id -u`, "ask", port, name)
		// The squids run as 1000.
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if got := ask("ok.test"); !strings.Contains(got, "MARKER") || !strings.HasSuffix(got, "65534\n") {
		t.Errorf("another user gets no answer: %q", got)
	}
	if got := ask("no.test"); !strings.Contains(got, " 403 ") {
		t.Errorf("another user gets more than the list: %q", got)
	}
}
