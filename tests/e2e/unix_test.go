//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/tests/e2e/drive"

	"ai-sandbox/tests/e2e/internet"
)

// withGate runs a test for each way that a podman sandbox can have a gate beside
// the usual one: over a unix socket, and with the builtin engine.
func withGate(t *testing.T, f func(t *testing.T, b *drive.Box, args func(command ...string) []string)) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"unix":         {"--net", "unix"},
		"unix squid":   {"--net", "unix", "--gate-engine", "squid"},
		"unix builtin": {"--net", "unix", "--gate-engine", "builtin"},
		"builtin":      {"--gate-engine", "builtin"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			f(t, b, func(command ...string) []string {
				return slices.Concat(flags, []string{"--allow", b.Host("ok.test"), "--"}, command)
			})
		})
	}
}

// Allowed hosts are reached, others refused before anything is looked up, and
// named at the end.
func TestOtherGates(t *testing.T) {
	withGate(t, func(t *testing.T, b *drive.Box, args func(...string) []string) {
		control(t, "http://"+internet.Refused) // it would answer
		no := b.Host("no.test")
		script := curl + "https://" + b.Host("ok.test") + "/\n" + curl + "http://" + b.Host("ok.test") + "/\n" +
			curl + "https://" + no + "/\n" + curl + "http://" + no + "/\n" + curl + "http://" + internet.Refused + "/" + b.Token + "\n" +
			curl + "https://" + internet.Refused + "/" + b.Token + "\n./probe fetch https://" + b.Host("ok.test") + "/"
		r := b.OK(args("sh", "-c", script)...)
		if strings.Count(r.Out, w.net.Marker) != 3 || !w.net.Reached(b.Host("ok.test")) {
			t.Errorf("want the marker three times: %s", r)
		}
		if strings.Count(r.Out, "\n000 403\n") != 2 || strings.Count(r.Out, "\n403 000\n") != 2 {
			t.Errorf("want two refusals of each kind: %s", r)
		}
		if !regexp.MustCompile(`(?m)\brefused: ` + regexp.QuoteMeta(no) + `\b.* 2 times.*--allow `).MatchString(r.Err) {
			t.Errorf("%s is not named: %s", no, r)
		}
		unseen(t, no)
		for _, h := range w.net.Hits(b.Token) {
			if !strings.Contains(h.Host+h.SNI, "ok.test") || h.Via != "" {
				t.Errorf("reached: %+v", h)
			}
		}
	})
}

// Names that lead inside are refused by the address.
func TestOtherGatesPrivate(t *testing.T) {
	withGate(t, func(t *testing.T, b *drive.Box, args func(...string) []string) {
		control(t, "http://127.0.0.1:8888")
		list := args("sh", "-c", "")
		list = list[:len(list)-4]
		script := curl + "http://" + b.Host("ok.test") + "/\n"
		zones := []string{"private.test", "meta.test", "loop.test", "map.test", "loop6.test", "ula.test"}
		for _, zone := range zones {
			list = append(list, "--allow", b.Host(zone)+":8888")
			script += curl + "http://" + b.Host(zone) + ":8888/\n"
		}
		r := b.OK(append(list, "--", "sh", "-c", script+"true")...)
		if strings.Count(r.Out, w.net.Marker) != 1 || strings.Count(r.Out, "\n403 000\n") != len(zones) {
			t.Errorf("want the marker once, from the control: %s", r)
		}
		for _, h := range w.net.Hits(b.Token) {
			if h.Host != b.Host("ok.test") {
				t.Errorf("reached: %+v", h)
			}
		}
	})
}

// What does not go through the gate has no way; with --net unix there is not even
// a device.
func TestOtherGatesDirect(t *testing.T) {
	withGate(t, func(t *testing.T, b *drive.Box, args func(...string) []string) {
		var servers []*internet.Listener
		tcp := []string{"tcp"}
		for _, ip := range []string{internet.Allowed, internet.Refused, "[" + internet.Refused6 + "]", internet.Private, internet.Metadata, "127.0.0.1", "[::1]"} {
			l, err := w.net.Listen(ip + ":0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			servers, tcp = append(servers, l), append(tcp, l.Addr)
		}
		loop := port(servers[5].Addr)
		aliases := " 169.254.1.1:" + loop + " 169.254.1.2:" + loop + " 192.0.2.2:" + loop
		script := "cat /proc/net/dev; ./probe " + strings.Join(tcp, " ") + aliases + "; ./probe udp " + internet.DNS + ":53; ./probe dns " + b.Host("ok.test") + " " + internet.DNS + ":53; " +
			"getent hosts " + b.Host("ok.test") + " && echo RESOLVED; ./probe calls; ./probe status"
		a := args("sh", "-c", script)
		r := b.OK(a...)
		for _, s := range servers {
			if s.Count() != 0 {
				t.Errorf("%s was reached", s.Addr)
			}
		}
		unseen(t, b.Token)
		if strings.Contains(r.Out, w.net.Marker) || strings.Contains(r.Out, " open ") || strings.Contains(r.Out, "RESOLVED") {
			t.Errorf("something answered: %s", r)
		}
		if strings.Count(r.Out, "tcp ") < len(tcp)-1 {
			t.Errorf("not all probes ran: %s", r)
		}
		devices := regexp.MustCompile(`(?m)^ *(\w+):`).FindAllStringSubmatch(r.Out, -1)
		unix := slices.Contains(a, "unix")
		if len(devices) == 0 || unix != (len(devices) == 1) || devices[0][1] != "lo" && unix {
			t.Errorf("network devices: %q", devices)
		}
		for line := range strings.Lines(r.Out) {
			if strings.HasPrefix(line, "/proc/") && (!strings.Contains(line, "CapBnd=0000000000000000") || !strings.Contains(line, "NoNewPrivs=1 Seccomp=2")) {
				t.Errorf("not dropped: %s", line)
			}
		}
		if !strings.Contains(r.Out, "clone-newuser E") || !strings.Contains(r.Out, "netlink-flush E") {
			t.Errorf("%s", r)
		}
		// The positive control: from outside the same probe reaches them all.
		out, err := exec.Command(filepath.Join(w.bin, "probe"), tcp...).CombinedOutput()
		if err != nil || strings.Count(string(out), w.net.Marker) != len(servers) {
			t.Errorf("the positive control failed: %v: %s", err, out)
		}
	})
}

// The printout says which gate it is, and how it is reached.
func TestOtherGatesArePrinted(t *testing.T) {
	withGate(t, func(t *testing.T, b *drive.Box, args func(...string) []string) {
		a := args("true")
		text := b.OK(append([]string{"--print-policy"}, a...)...).Out
		engine := "squid"
		if slices.Contains(a, "builtin") {
			engine = "builtin"
		}
		network := "gated"
		if slices.Contains(a, "unix") {
			network = "unix"
		}
		if !regexp.MustCompile(`(?m)^  gate +`+engine+`\b`).MatchString(text) || !regexp.MustCompile(`(?m)^network +`+network+`:`).MatchString(text) {
			t.Errorf("want engine %s, network %s: %s", engine, network, text)
		}
	})
}
