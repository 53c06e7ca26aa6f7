// What is asked of a published port.

package drive

import (
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// lastPort is the port that was given last.
var lastPort atomic.Int32

// FreePort is a port of 127.0.0.1 that nobody listens at: below those that the kernel gives
// to who asks for any, and those that ai-sandbox picks, so that nobody else gets it.
func FreePort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(10_000 + (os.Getpid()*100+int(lastPort.Add(1)))%9000)
		if l, err := net.Listen("tcp4", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// Fetched is the status and body of an answer, or the error, without any proxy.
func Fetched(url string) (int, string) {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, string(b) + err.Error()
	}
	return resp.StatusCode, string(b)
}

// Answers waits until a server inside answers at a place outside.
func (l *Live) Answers(t *testing.T, url string) string {
	t.Helper()
	var code int
	var body string
	for deadline := time.Now().Add(time.Minute); code != 200; time.Sleep(20 * time.Millisecond) {
		if code, body = Fetched(url); code != 200 && time.Now().After(deadline) {
			t.Fatalf("%s does not answer: %s\n%s", url, body, Tail(l.Err.String()))
		}
	}
	return body
}

// TestGitOverSSH: a remote that is named as ssh is not reached, and is once git does what
// the guide says. path is the repository's at the far server.
func TestGitOverSSH(t *testing.T, b *Box, path string) {
	t.Helper()
	host := b.Host("ok.test")
	remote := "git@" + host + ":" + path
	r := b.OK("--ephemeral-home", "--allow", host, "--", "sh", "-c", `
		git ls-remote `+remote+` >&2 && echo "ssh gets through"
		said=$(sed -n 's/^\x60\(git config --global url[^\x60]*\)\x60.*/\1/p' /etc/aisb/GUIDE.md | sed 's/HOST/`+host+`/g')
		echo "$said"; eval "$said"; git ls-remote `+remote)
	if want := "git config --global url.https://" + host + "/.insteadOf git@" + host + ":\n"; !strings.HasPrefix(r.Out, want) || !strings.HasSuffix(r.Out, "\trefs/heads/main\n") {
		t.Errorf("%s", r)
	}
	// From outside, for one run.
	r = b.OK("--ephemeral-home", "--allow", host, "--env", "GIT_CONFIG_COUNT=1", "--env", "GIT_CONFIG_KEY_0=url.https://"+host+"/.insteadOf",
		"--env", "GIT_CONFIG_VALUE_0=git@"+host+":", "--", "git", "ls-remote", remote)
	if !strings.HasSuffix(r.Out, "\trefs/heads/main\n") {
		t.Errorf("%s", r)
	}
}
