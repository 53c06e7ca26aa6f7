package detach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The program that is started again is this test.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Marker {
		os.Exit(again(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// told is what the other process says of itself.
type told struct {
	PID, SID, PGID, PPID int
	Args                 []string
	Open                 []string
}

func again(args []string) int {
	if err := Keep(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 9
	}
	switch args[0] {
	case "exit":
		return 42
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "signal":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGINT)
		if err := os.WriteFile(args[1], nil, 0o600); err != nil {
			return 8
		}
		<-c
		return 43
	}
	var t told
	t.PID, t.PGID, t.PPID, t.Args = os.Getpid(), syscall.Getpgrp(), os.Getppid(), args
	t.SID, _ = unix.Getsid(0)
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, l := range links {
		to, _ := os.Readlink(l)
		t.Open = append(t.Open, to)
	}
	word, err := json.Marshal(t)
	if err != nil {
		return 7
	}
	log, err := os.OpenFile(args[1], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 6
	}
	if err := Report(word, log); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 5
	}
	fmt.Fprintln(os.Stderr, "for the log")
	return 0
}

func start(t *testing.T, signals <-chan os.Signal, args ...string) ([]byte, int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var got []byte
	code, err := Start(ctx, args, signals, func(word []byte) error { got = word; return nil })
	return got, code, err
}

func TestDetached(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Left open by whoever started us, to be handed on by mistake.
	leak := filepath.Join(dir, "leak")
	fd, err := unix.Open(leak, unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	word, code, err := start(t, nil, "word", log, "", "--flag", "a b")
	if err != nil || code != 0 {
		t.Fatal(code, err)
	}
	var got told
	if err := json.Unmarshal(word, &got); err != nil {
		t.Fatal(err)
	}
	if got.SID != got.PID || got.PGID != got.PID || got.PPID != os.Getpid() {
		t.Errorf("it leads no session of its own: %+v", got)
	}
	if strings.Join(got.Args, "|") != "word|"+log+"||--flag|a b" {
		t.Errorf("arguments %q", got.Args)
	}
	for _, o := range got.Open {
		if o == leak {
			t.Error("a descriptor that was left open got through")
		}
	}
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if string(b) == "for the log\n" {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("the log has %q", b)
		}
	}
	var st syscall.WaitStatus
	if _, err := syscall.Wait4(got.PID, &st, 0, nil); err != nil || st.ExitStatus() != 0 {
		t.Errorf("it ended with %v, %v", st, err)
	}
}

// A word that is not passed on is the end.
func TestNotDelivered(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	code, err := Start(context.Background(), []string{"word", log}, nil, func([]byte) error { return full })
	if b, rerr := os.ReadFile(log); code != 0 || !errors.Is(err, full) || !strings.Contains(string(b), "nobody waits") {
		t.Errorf("%d, %v, %q, %v", code, err, b, rerr)
	}
}

func TestWithoutAWord(t *testing.T) {
	if _, code, err := start(t, nil, "exit"); code != 42 || err != nil {
		t.Errorf("exit %d, %v", code, err)
	}
	if _, code, err := start(t, nil, "die"); code != 137 || err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("killed: exit %d, %v", code, err)
	}
	up := filepath.Join(t.TempDir(), "up")
	signals := make(chan os.Signal, 1)
	go func() {
		for {
			if _, err := os.Stat(up); err == nil {
				signals <- syscall.SIGINT
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	if _, code, err := start(t, signals, "signal", up); code != 43 || err != nil {
		t.Errorf("a signal: exit %d, %v", code, err)
	}
}
