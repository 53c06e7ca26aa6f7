// Values in the journal of systemd.

package canary

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"
)

// ErrNoJournal: nothing can be written to a journal here, as there is none.
var ErrNoJournal = errors.New("no journald has a socket here")

// Journal names the channels of the canaries that the journal has since a time. It
// writes a control there first, and fails when that is not found.
func (s *Set) Journal(since time.Time) (in []string, text string, err error) {
	sockets := 0
	for _, path := range []string{"/run/systemd/journal/socket", "/run/systemd/journal/stdout", "/dev/log"} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			sockets++
		}
	}
	if sockets == 0 {
		return nil, "", ErrNoJournal
	}
	control := "CONTROL_" + rand.Text()
	if out, err := exec.Command("logger", "--tag", "aisb-test", control).CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("write a control to the journal: %w: %s", err, out)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		// All fields, the command lines of whoever wrote them too, uncut.
		out, err := exec.Command("journalctl", "--no-pager", "--quiet", "--all", "--output=export", fmt.Sprintf("--since=@%d", since.Unix())).Output()
		if err != nil {
			return nil, "", fmt.Errorf("read the journal: %w", err)
		}
		if strings.Contains(string(out), "MESSAGE="+control+"\n") {
			return s.In(string(out)), string(out), nil
		}
		if time.Now().After(end) {
			return nil, "", errors.New("the control is not in the journal: can this user read it?")
		}
	}
}
