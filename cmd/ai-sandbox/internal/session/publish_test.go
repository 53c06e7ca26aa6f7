package session

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// publishing is a run with published ports.
func (e *env) publishing(t *testing.T, net string, entries ...string) (Report, error) {
	t.Helper()
	in := policy.Input{
		Facts:   policy.Facts{Project: e.project, RuntimeDir: e.m.RuntimeDir},
		Runtime: policy.RuntimePodman, Command: []string{"true"}, Net: net, Engine: policy.EngineBuiltin,
	}
	for _, s := range entries {
		p, err := policy.ParsePublish(s)
		if err != nil {
			t.Fatal(err)
		}
		in.Publish = append(in.Publish, p)
	}
	p, err := policy.Resolve(in)
	if err != nil {
		t.Fatal(err)
	}
	e.m.Say = func(format string, a ...any) { e.said = append(e.said, fmt.Sprintf(format, a...)) }
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return e.m.Run(ctx, e.be, Request{
		Policy: p, Streams: backend.Streams{Stdout: io.Discard, Stderr: io.Discard},
		Signals: e.signals, Start: time.Now(), Project: e.id,
	})
}

// opened is what the guest has seen and done with the way in.
func opened(in, out *os.File, word string) (*spec.Spec, *net.UnixConn, error) {
	var f, g spec.ToGuest
	if err := spec.ReadFrame(in, &f); err != nil {
		return nil, nil, err
	}
	var door *net.UnixConn
	if p := f.Spec.Publish; p != nil {
		var err error
		name := filepath.Join(filepath.Dir(in.Name()), spec.PublishName)
		if door, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"}); err != nil {
			return nil, nil, err
		}
		if _, err := door.Write([]byte(p.Hello + word)); err != nil {
			return nil, nil, err
		}
	}
	if err := spec.WriteFrame(out, spec.ToHost{Enforced: &spec.Enforced{}}); err != nil {
		return nil, nil, err
	}
	return f.Spec, door, spec.ReadFrame(in, &g)
}

// Without a network the host listens itself, from before the command on and until
// the session ends; nothing of the way in has a name when the command starts.
func TestPublishWithoutNetwork(t *testing.T) {
	inside, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	port := netip.MustParseAddrPort(inside.Addr().String()).Port()
	go func() {
		for {
			c, err := inside.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	var place, got string
	var e *env
	e = newEnv(t, func(in, out *os.File) error {
		s, door, err := opened(in, out, "")
		if err != nil {
			return err
		}
		defer door.Close()
		if names, err := os.ReadDir(filepath.Dir(in.Name())); err != nil || len(names) != 1 || names[0].Name() != policy.GuideName {
			t.Errorf("the control directory holds %v, %v", names, err)
		}
		if len(s.Publish.Ports) != 1 || s.Publish.Ports[0] != port || len(s.Firewall.Published) != 0 {
			t.Errorf("%+v %+v", s.Publish, s.Firewall)
		}
		for _, line := range e.said {
			if rest, ok := strings.CutPrefix(line, "published http://"); ok {
				place, _, _ = strings.Cut(rest, " ")
			}
		}
		answered := make(chan string, 1)
		go func() {
			c, err := net.Dial("tcp4", place)
			if err != nil {
				answered <- err.Error()
				return
			}
			defer c.Close()
			text, _ := io.ReadAll(c)
			answered <- string(text)
		}()
		buf := make([]byte, spec.PublishMessage)
		n, err := door.Read(buf)
		if err != nil {
			return err
		}
		call, err := spec.ParseCall(buf[:n])
		if err != nil || call.Port != port {
			t.Errorf("asked for %+v, %v", call, err)
		}
		c, err := net.Dial("tcp4", inside.Addr().String())
		if err != nil {
			return err
		}
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			return err
		}
		if err := raw.Control(func(fd uintptr) {
			_, _, err = door.WriteMsgUnix(spec.Reply{ID: call.ID}.Bytes(), unix.UnixRights(int(fd)), nil)
		}); err != nil {
			return err
		}
		c.Close()
		got = <-answered
		return spec.WriteFrame(out, spec.ToHost{Exited: &spec.Exited{}})
	})
	rep, err := e.publishing(t, policy.NetUnix, fmt.Sprintf(":%d", port))
	if err != nil || rep.EndedBy != EndedByCommand || got != "hello" {
		t.Fatalf("%+v, %v: %q", rep, err, got)
	}
	if len(rep.Published) != 1 || rep.Published[0].Host() != place || rep.Published[0].Port != port {
		t.Errorf("%+v, said %q", rep.Published, e.said)
	}
	if c, err := net.Dial("tcp4", place); err == nil {
		c.Close()
		t.Error("somebody listens after the end")
	}
	e.clean(t)
}

// Who does not know the word is not listened to, and without the one who does
// nothing runs.
func TestPublishStranger(t *testing.T) {
	t.Parallel() // it waits for the other one
	e := newEnv(t, func(in, out *os.File) error {
		_, door, err := opened(in, out, "x")
		if door != nil {
			defer door.Close()
		}
		return err
	})
	if rep, err := e.publishing(t, policy.NetUnix, ":3000"); err == nil || rep.EndedBy == EndedByCommand || !strings.Contains(err.Error(), "published ports") {
		t.Errorf("%+v, %v", rep, err)
	}
	e.clean(t)
}

// Where a network leads in, the spec and the container's policy have the ports, and
// each server that is not reached is told of once.
func TestPublishGated(t *testing.T) {
	e := newEnv(t, func(in, out *os.File) error {
		s, door, err := opened(in, out, "")
		if err != nil {
			return err
		}
		if door != nil || fmt.Sprint(s.Firewall.Published) != "[3000 5173]" {
			t.Errorf("%+v", s.Firewall)
		}
		for _, f := range []spec.ToHost{{Started: true}, {LoopbackOnly: 3000}, {LoopbackOnly: 3000}, {LoopbackOnly: 4000}, {Exited: &spec.Exited{}}} {
			if err := spec.WriteFrame(out, f); err != nil {
				return err
			}
		}
		return nil
	})
	rep, err := e.publishing(t, policy.NetGated, ":5173", ":3000", ":3000", "[::1]:39999:3000")
	if err != nil || len(rep.Published) != 3 {
		t.Fatalf("%+v, %v", rep, err)
	}
	seen := map[uint16]bool{}
	for _, p := range rep.Published {
		if p.HostPort == 0 || seen[p.HostPort] || p.LoopbackOnly != (p.Port == 3000) {
			t.Errorf("%+v", rep.Published)
		}
		seen[p.HostPort] = true
	}
	hints := 0
	for _, line := range e.said {
		if strings.Contains(line, "listens on 127.0.0.1 only") {
			hints++
		}
	}
	if hints != 1 {
		t.Errorf("hinted %d times: %q", hints, e.said)
	}
	e.clean(t)
}

// A gate's port is none that is published.
func TestGateAvoidsPublished(t *testing.T) {
	free := map[uint16]bool{}
	for p := uint16(firstPort); len(free) < 400; p += 7 {
		free[p] = true
	}
	ports, release, err := holdPorts(2, func(p uint16) bool { return !free[p] })
	if err != nil || !free[ports[0]] || !free[ports[1]] {
		t.Fatalf("%v, %v", ports, err)
	}
	defer release()
	var asked []uint16
	l, err := listenApart(func(p uint16) bool {
		asked = append(asked, p)
		return len(asked) < 5
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := netip.MustParseAddrPort(l.Addr().String()).Port(); len(asked) != 5 || got != asked[4] {
		t.Errorf("%d of %v", got, asked)
	}
	r := &run{req: Request{Policy: policy.Policy{Publish: []policy.Publish{{Addr: "127.0.0.1", HostPort: 3000, Port: 80}}}}}
	if !r.taken(3000) || r.taken(80) {
		t.Error("the published port is not the one that is taken")
	}
}
