// Command probe runs inside a sandbox and tells what works there. It is linked
// statically and lies in the tests' projects. Each verb prints one line a probe:
// a name and what came of it. It judges nothing: the tests do.
package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) < 2 {
		os.Exit(2)
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "fetch":
		fetch(args[0], http.DefaultTransport.(*http.Transport).Clone())
	case "fetch-direct":
		fetch(args[0], &http.Transport{})
	case "tcp":
		for _, a := range args {
			fmt.Println("tcp", a, dial(a))
		}
	case "udp":
		for _, a := range args {
			fmt.Println("udp", a, datagram(a, []byte("probe")))
		}
	case "dns":
		for _, a := range args[1:] {
			fmt.Println("dns", a, query(a, args[0]))
		}
	case "serve":
		serve(args[0], args[1:])
	case "from": // a local port, then where to
		fmt.Println("from", args[0], dialFrom(args[0], args[1]))
	case "sweep":
		sweep(args[0])
	case "status":
		status()
	case "calls":
		calls()
	case "ptrace": // leaves PID 1 stopped where it works
		fmt.Println("ptrace-pid1", unix.PtraceAttach(1))
	case "alloc", "fork", "spin", "fill":
		use(os.Args[1], args)
	case "beat":
		beat(args[0], args[1])
	case "fds":
		fds()
	case "plant":
		plant(args)
	default:
		os.Exit(2)
	}
}

func fetch(url string, t *http.Transport) {
	t.DisableKeepAlives = true
	c := http.Client{Transport: t, Timeout: 15 * time.Second}
	start := time.Now()
	resp, err := c.Get(url)
	if err != nil {
		fmt.Printf("error after %d ms: %v\n", time.Since(start).Milliseconds(), err)
		os.Exit(1)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(bytes.TrimSpace(b)))
	if err != nil || resp.StatusCode != 200 {
		os.Exit(1)
	}
}

// outcome names what came of a connection: "open" and what was read, or the
// error, and how long it took.
func outcome(start time.Time, data []byte, err error) string {
	ms := time.Since(start).Milliseconds()
	var errno syscall.Errno
	var ne net.Error
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Sprintf("open %q %d", strings.TrimSpace(string(data)), ms)
	case errors.As(err, &errno):
		return fmt.Sprintf("%s %d", unix.ErrnoName(errno), ms)
	case errors.As(err, &ne) && ne.Timeout():
		return fmt.Sprintf("timeout %d", ms)
	}
	return fmt.Sprintf("%q %d", err.Error(), ms)
}

func dial(addr string) string { return dialWith(net.Dialer{}, addr) }

// dialFrom is dial from a port.
func dialFrom(port, addr string) string {
	n, err := strconv.Atoi(port)
	if err != nil {
		return err.Error()
	}
	return dialWith(net.Dialer{LocalAddr: &net.TCPAddr{Port: n}}, addr)
}

func dialWith(d net.Dialer, addr string) string {
	start := time.Now()
	d.Timeout = 15 * time.Second
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return outcome(start, nil, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second)) // the read tells
	_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	b, err := io.ReadAll(io.LimitReader(c, 400))
	if len(b) > 0 {
		err = nil
	}
	return outcome(start, b, err)
}

func datagram(addr string, msg []byte) string {
	start := time.Now()
	c, err := net.Dial("udp", addr)
	if err != nil {
		return outcome(start, nil, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second)) // the read tells
	if _, err := c.Write(msg); err != nil {
		return outcome(start, nil, err)
	}
	buf := make([]byte, 2048)
	n, err := c.Read(buf)
	return outcome(start, []byte(hex.EncodeToString(buf[:n])), err)
}

// query asks the server at addr for name, over UDP and TCP.
func query(addr, name string) string {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		return err.Error()
	}
	return "udp=" + datagram(addr, b) + " tcp=" + dial(addr)
}

// sweep tries every TCP port of an address, some hundred at a time, and prints
// those that answer, and how the others failed.
func sweep(addr string) {
	var mu sync.Mutex
	kinds := map[string]int{}
	var wg sync.WaitGroup
	ports := make(chan int)
	start := time.Now()
	for range 256 {
		wg.Go(func() {
			for p := range ports {
				c, err := net.DialTimeout("tcp", net.JoinHostPort(addr, strconv.Itoa(p)), 30*time.Second)
				kind := "open"
				var errno syscall.Errno
				switch {
				case err == nil:
					c.Close()
					fmt.Println("open", p)
				case errors.As(err, &errno):
					kind = unix.ErrnoName(errno)
				default:
					kind = "timeout"
				}
				mu.Lock()
				kinds[kind]++
				mu.Unlock()
			}
		})
	}
	for p := 1; p <= 65535; p++ {
		ports <- p
	}
	close(ports)
	wg.Wait()
	fmt.Println("swept", kinds, time.Since(start).Milliseconds())
}

// status prints the privileges of every task of every process.
func status() {
	files, err := filepath.Glob("/proc/[0-9]*/task/*/status")
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			fmt.Println("unreadable", f, err)
			continue
		}
		var out []string
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			switch name {
			case "Name", "Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
				out = append(out, name+"="+strings.Join(strings.Fields(value), ","))
			}
		}
		fmt.Println(f, strings.Join(out, " "))
	}
}

// harmless makes root a nobody: no sandbox has it for root, and where this runs
// outside, as a control, nothing of the machine may change.
func harmless() error {
	if os.Getuid() != 0 {
		return nil
	}
	const nobody = 65534
	return errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody))
}

// calls tries what the kernel has to refuse.
func calls() {
	if err := harmless(); err != nil {
		fmt.Println("control", err)
		os.Exit(1)
	}
	say := func(name string, errno error) {
		var e syscall.Errno
		if errors.As(errno, &e) && e != 0 {
			fmt.Println(name, unix.ErrnoName(e))
			return
		}
		fmt.Println(name, "OK")
	}
	for _, s := range []struct {
		name             string
		family, typ, pro int
	}{
		{"socket-inet-stream", unix.AF_INET, unix.SOCK_STREAM, 0}, // control
		{"socket-inet6-stream", unix.AF_INET6, unix.SOCK_STREAM, 0},
		{"socket-unix", unix.AF_UNIX, unix.SOCK_STREAM, 0},
		{"socket-packet", unix.AF_PACKET, unix.SOCK_RAW, 0},
		{"socket-vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{"socket-alg", unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{"socket-raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"socket-raw6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{"socket-bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 0},
		{"socket-tipc", unix.AF_TIPC, unix.SOCK_STREAM, 0},
		{"socket-can", unix.AF_CAN, unix.SOCK_RAW, 0},
		{"socket-rds", unix.AF_RDS, unix.SOCK_SEQPACKET, 0},
		{"socket-xdp", unix.AF_XDP, unix.SOCK_RAW, 0},
	} {
		fd, err := unix.Socket(s.family, s.typ, s.pro)
		if err == nil {
			unix.Close(fd)
		}
		say(s.name, err)
	}
	for name, flag := range map[string]uintptr{
		"newuser": unix.CLONE_NEWUSER, "newnet": unix.CLONE_NEWNET, "newns": unix.CLONE_NEWNS,
		"newpid": unix.CLONE_NEWPID, "newuser-newnet": unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
	} {
		// On a thread of its own, which ends with the goroutine.
		done := make(chan error)
		go func() {
			runtime.LockOSThread()
			done <- unix.Unshare(int(flag))
		}()
		say("unshare-"+name, <-done)
	}
	// clone with a flag of a new namespace, as unshare(1) does not.
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
	say("clone-newuser", errno)
	type cloneArgs struct{ flags, pidfd, childTID, parentTID, exit, stack, stackSize, tls uint64 }
	ca := cloneArgs{flags: unix.CLONE_NEWUSER, exit: uint64(unix.SIGCHLD)}
	pid, _, errno = syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&ca)), unsafe.Sizeof(ca), 0)
	if errno == 0 && pid == 0 {
		syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
	say("clone3-newuser", errno)
	_, _, errno = syscall.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
	say("io_uring_setup", errno)
	_, _, errno = syscall.Syscall6(unix.SYS_KEYCTL, 0, uintptr(0xfffffffd), 0, 0, 0, 0)
	say("keyctl", errno)
	_, _, errno = syscall.Syscall6(unix.SYS_ADD_KEY, 0, 0, 0, 0, 0, 0)
	say("add_key", errno)
	_, _, errno = syscall.Syscall6(unix.SYS_BPF, 0, 0, 0, 0, 0, 0)
	say("bpf", errno)
	_, _, errno = syscall.Syscall(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0)
	say("perf_event_open", errno)
	_, _, errno = syscall.Syscall(unix.SYS_USERFAULTFD, 0, 0, 0)
	say("userfaultfd", errno)
	c := byte('x')
	_, _, errno = syscall.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
	say("ioctl-tiocsti", errno)
	// The comparison must not be beaten by the upper half of the argument.
	_, _, errno = syscall.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI|1<<32, uintptr(unsafe.Pointer(&c)))
	say("ioctl-tiocsti-high", errno)
	for name, err := range map[string]error{
		"setuid-0":       unix.Setuid(0),
		"setgid-0":       unix.Setgid(0),
		"setgroups":      unix.Setgroups([]int{0}),
		"mount-tmpfs":    unix.Mount("none", "/tmp", "tmpfs", 0, ""),
		"remount-root":   unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, ""),
		"write-root":     os.WriteFile("/aisb-probe", nil, 0o600),
		"write-etc":      os.WriteFile("/etc/aisb-probe", nil, 0o600),
		"write-usr":      os.WriteFile("/usr/local/bin/aisb-probe", nil, 0o600),
		"write-sysctl":   os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600),
		"write-home":     os.WriteFile("/home/sandbox/.aisb-probe", nil, 0o600), // control
		"write-tmp":      os.WriteFile("/tmp/aisb-probe", nil, 0o600),           // control
		"read-pid1-mem":  open("/proc/1/mem", os.O_RDWR),
		"read-pid1-env":  open("/proc/1/environ", os.O_RDONLY),
		"open-aisb-in":   open("/run/aisb/in", os.O_WRONLY|unix.O_NONBLOCK),
		"open-aisb-out":  open("/run/aisb/out", os.O_RDWR|unix.O_NONBLOCK),
		"open-net-tun":   open("/dev/net/tun", os.O_RDWR),
		"netlink-flush":  netlinkFlush(),
		"setns-pid1-net": setns("/proc/1/ns/net"),
	} {
		say(name, err)
	}
}

func open(name string, flag int) error {
	f, err := os.OpenFile(name, flag, 0)
	if err == nil {
		f.Close()
	}
	return err
}

func setns(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), 0)
}

// netlinkFlush asks nftables to delete every table, as "nft flush ruleset" does,
// without depending on nft.
func netlinkFlush() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const nlmsgBatchBegin, nlmsgBatchEnd, delTable = 0x10, 0x11, 0x0a02
	msg := func(typ, flags uint16, seq uint32, res uint16) []byte {
		b := make([]byte, 20)
		le := func(off int, v uint32, n int) {
			for i := range n {
				b[off+i] = byte(v >> (8 * i))
			}
		}
		le(0, 20, 4)
		le(4, uint32(typ), 2)
		le(6, uint32(flags), 2)
		le(8, seq, 4)
		b[18], b[19] = byte(res>>8), byte(res)
		return b
	}
	var batch []byte
	batch = append(batch, msg(nlmsgBatchBegin, unix.NLM_F_REQUEST, 1, 10)...)
	batch = append(batch, msg(delTable, unix.NLM_F_REQUEST|unix.NLM_F_ACK, 2, 0)...)
	batch = append(batch, msg(nlmsgBatchEnd, unix.NLM_F_REQUEST, 3, 10)...)
	if err := unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	tv := unix.Timeval{Sec: 2}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return err
	}
	if n >= 20 && buf[4] == 2 { // NLMSG_ERROR
		code := int32(uint32(buf[16]) | uint32(buf[17])<<8 | uint32(buf[18])<<16 | uint32(buf[19])<<24)
		if code != 0 {
			return syscall.Errno(-code)
		}
	}
	return nil
}

// beat asks for url again and again, and writes a dot to the file each time, so
// that the far end and the host both see whether this process lives.
func beat(url, file string) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableKeepAlives = true
	c := http.Client{Transport: t, Timeout: 2 * time.Second}
	for i := 0; ; i++ {
		if _, err := f.WriteString("."); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+strconv.Itoa(i), nil)
		if err != nil {
			panic(err)
		}
		if resp, err := c.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body) // the far end tells
			resp.Body.Close()
		}
		cancel()
		time.Sleep(20 * time.Millisecond)
	}
}

// fds prints what this process has open.
func fds() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil {
			fmt.Println(e.Name(), target)
		}
	}
}
