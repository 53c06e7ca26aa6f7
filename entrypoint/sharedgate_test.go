package entrypoint

import (
	"net"
	"strings"
	"testing"
	"time"
)

func TestTaken(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if !taken(port) {
		t.Error("a port with a listener is free")
	}
	// What is still closing there does not count.
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	l.Close()
	if taken(port) {
		t.Error("a port that was left is taken")
	}
}

// A squid that a SIGKILL does not end, as in state D, is not waited for for ever, and one
// that ends is until then.
func TestGateEndIsBounded(t *testing.T) {
	const none = 1 << 30 // no process has such a number: nothing is killed
	s := &squids{whose: map[int]chan<- death{none: nil}}
	g := &gate{squids: s, pids: []int{none, none + 1}}
	if err := g.end(10 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "(processes [1073741824])") {
		t.Errorf("one that stays: %v", err)
	}
	go func() {
		time.Sleep(10 * time.Millisecond)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.whose, none)
	}()
	if err := g.end(time.Minute); err != nil {
		t.Errorf("one that ends: %v", err)
	}
}
