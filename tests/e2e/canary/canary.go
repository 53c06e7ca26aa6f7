// Package canary finds secrets where none may be: in files, in text, and in what
// /proc shows of other processes while something runs.
package canary

import (
	"bytes"
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Set is canaries by the name of their channel.
type Set struct {
	mu      sync.Mutex        // a Watch looks while more are added
	needles map[string]string // by what to look for
	keys    int               // that Key made
	began   time.Time
}

var fours = regexp.MustCompile(`....`)

// New makes one canary for each channel.
func New() *Set { return &Set{needles: map[string]string{}, began: time.Now()} }

// Add makes a canary that tells, where it is found, what it came through.
func (s *Set) Add(channel string) string {
	value := "CANARY_" + channel + "_" + rand.Text()
	s.Know(channel, value)
	return value
}

// Key makes a canary that looks like a key, of one of the shapes that keys have: nothing
// but its randomness tells what it is.
func (s *Set) Key(channel string) string {
	b := make([]byte, 30)
	rand.Read(b) // never fails
	shapes := []string{
		base64.StdEncoding.EncodeToString(b),      // 40
		base64.StdEncoding.EncodeToString(b[:24]), // 32
		"sk-" + rand.Text(),
		hex.EncodeToString(b[:16]),
		strings.TrimSuffix(fours.ReplaceAllString(base32.StdEncoding.EncodeToString(b[:15]), "$0-"), "-"),
	}
	s.mu.Lock()
	value := shapes[s.keys%len(shapes)]
	s.keys++
	s.mu.Unlock()
	s.Know(channel, value)
	return value
}

// Know makes a canary of a value.
func (s *Set) Know(channel, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needles[value] = channel
	// Each stands for its kind; policy's own tests have all of them.
	s.needles[strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(value)), "=")[:len(value)]] = channel + " in base64"
	s.needles[hex.EncodeToString([]byte(value))] = channel + " in hex"
}

// In names the channels of the canaries that a text has.
func (s *Set) In(text string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for needle, channel := range s.needles {
		if strings.Contains(text, needle) {
			out = append(out, channel)
		}
	}
	slices.Sort(out)
	return out
}

// Sweep names the files in dirs, or those of dirs that are files, that hold a
// canary. It plants a control in each directory first, and fails when that is not
// found. What has not changed since the canaries were made, which its ctime tells, has none,
// and is not read. as comes before the command line, to see what a plain user can't.
func (s *Set) Sweep(as []string, dirs ...string) (hits []string, err error) {
	list, err := os.CreateTemp("", "canaries") // not below dirs
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(list.Name())) }()
	control := "CONTROL_" + rand.Text()
	needles := []string{control}
	s.mu.Lock()
	for needle := range s.needles {
		needles = append(needles, needle)
	}
	s.mu.Unlock()
	if _, err := list.WriteString(strings.Join(needles, "\n") + "\n"); err != nil {
		return nil, err
	}
	if err := list.Close(); err != nil {
		return nil, err
	}
	want := map[string]bool{}
	for _, d := range dirs {
		if info, err := os.Stat(d); err == nil && info.Mode().IsRegular() {
			continue
		}
		planted := filepath.Join(d, "."+control)
		if err := os.WriteFile(planted, []byte("x\x00"+control+"\n"), 0o600); err != nil {
			return nil, err
		}
		defer os.Remove(planted)
		want[planted] = true
	}
	// 1: nothing was found; 2: also that a file went away meanwhile.
	argv := slices.Concat(as, []string{"find"}, dirs, []string{
		"-newerct", fmt.Sprintf("@%d", s.began.Unix()-1), "-type", "f", "-exec", "grep", "-laF", "-D", "skip", "-f", list.Name(), "{}", "+",
	})
	cmd := exec.Command(argv[0], argv[1:]...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); cmd.ProcessState == nil {
		return nil, err
	}
	for _, file := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		switch {
		case strings.HasSuffix(file, "/."+control): // twice, where dirs overlap
			delete(want, file)
		case file != "":
			hits = append(hits, file)
		}
	}
	if len(want) > 0 {
		return hits, fmt.Errorf("the control is not found in %v: %s", want, errOut.String())
	}
	return hits, nil
}

// A Watch looks at every process again and again.
type Watch struct {
	s    *Set
	mine func(argv string) bool
	stop chan struct{}
	done sync.WaitGroup

	mu     sync.Mutex
	rounds int
	hits   map[string]bool
	seen   map[string]bool
}

// Watch starts looking at /proc, as fast as it can. mine tells by its arguments
// which process may have canaries in its environment; nobody may have one in the
// arguments.
func (s *Set) Watch(mine func(argv string) bool) *Watch {
	w := &Watch{s: s, mine: mine, stop: make(chan struct{}), hits: map[string]bool{}, seen: map[string]bool{}}
	w.done.Go(func() {
		for {
			select {
			case <-w.stop:
				return
			default:
				w.look()
			}
		}
	})
	return w
}

func (w *Watch) look() {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		if c := e.Name()[0]; c < '0' || c > '9' {
			continue
		}
		raw, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil || len(raw) == 0 {
			continue
		}
		argv := strings.ReplaceAll(string(raw), "\x00", " ")
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ") // another user's
		if again, err := os.ReadFile("/proc/" + e.Name() + "/cmdline"); err != nil || !bytes.Equal(raw, again) {
			env = nil // of another program by now, maybe; the next look tells
		}
		w.mu.Lock()
		w.seen[argv] = true
		for _, channel := range w.s.In(argv) {
			w.hits["argv of "+argv+": "+channel] = true
		}
		if !w.mine(argv) {
			for _, channel := range w.s.In(string(env)) {
				w.hits["environment of "+argv+": "+channel] = true
			}
		}
		w.mu.Unlock()
	}
	w.mu.Lock()
	w.rounds++
	w.mu.Unlock()
}

// Round waits until everything that is there now has been looked at.
func (w *Watch) Round() {
	rounds := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.rounds
	}
	// The one that goes on may have passed it already.
	for first := rounds(); rounds() < first+2; {
		time.Sleep(time.Millisecond)
	}
}

// Stop returns how often it looked, where it found canaries, and the arguments of
// every process that it saw.
func (w *Watch) Stop() (rounds int, hits, seen []string) {
	close(w.stop)
	w.done.Wait()
	for h := range w.hits {
		hits = append(hits, h)
	}
	for a := range w.seen {
		seen = append(seen, a)
	}
	return w.rounds, hits, seen
}
