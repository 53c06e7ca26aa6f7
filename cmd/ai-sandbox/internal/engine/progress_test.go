package engine

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/tests/hostile"
)

// screen is what stands on a terminal to which the text was written. It knows what a
// progress may write, and fails on anything else that steers one.
func screen(t *testing.T, text string, columns int) []string {
	t.Helper()
	lines := []string{""}
	for text != "" {
		last := &lines[len(lines)-1]
		switch {
		case strings.HasPrefix(text, "\r"):
			text = text[1:]
			// Nothing but a whole line comes after it.
			if text != "" && !strings.HasPrefix(text, "ai-sandbox: ") {
				t.Fatalf("the line begins with %.20q", text)
			}
			*last = ""
		case strings.HasPrefix(text, "\x1b[K"):
			text = text[3:]
		case text[0] == '\n':
			lines, text = append(lines, ""), text[1:]
		case text[0] < ' ':
			t.Fatalf("%.20q on the terminal", text)
		default:
			r := []rune(text)[0]
			*last += string(r)
			text = text[len(string(r)):]
			if n := width(*last); n >= columns {
				t.Fatalf("%d columns are not enough for %q", columns, *last)
			}
		}
	}
	return lines
}

// A build on a terminal: a line for each step, with its time, in 80 columns and fewer.
func TestProgressOnTerminal(t *testing.T) {
	for _, columns := range []int{80, 40, 200} {
		var out bytes.Buffer
		now := time.Unix(1000, 0)
		p := &progress{w: &out, now: func() time.Time { return now }, columns: func() int { return columns }}
		p.lines = func(format string, a ...any) { fmt.Fprintf(&out, "ai-sandbox: "+format+"\n", a...) }
		const ref = "localhost/ai-sandbox-gate:0123456789ab"
		p.step(ref, imagebuild.Step{N: 1, Of: 2, Text: "FROM registry.example.com/a/long/name@sha256:" + strings.Repeat("ab", 32)})
		now = now.Add(12 * time.Second)
		p.mu.Lock()
		p.draw() // as the clock does
		p.mu.Unlock()
		p.step(ref, imagebuild.Step{N: 2, Of: 2, Text: "Debian\x1b[2J packages\n"})
		now = now.Add(72 * time.Second)
		p.say("a word")
		for done := range int64(5) {
			p.download("node-v24.15.0-linux-x64.tar.xz", done*1e6, 4e6)
		}
		p.step(ref, imagebuild.Step{Text: "its first start"})
		p.close()
		p.close()
		got := screen(t, out.String(), max(columns, 41))
		want := []string{
			"ai-sandbox: ai-sandbox-gate:0123456789ab: step 1 of 2: FROM registry.example… 12s",
			`ai-sandbox: ai-sandbox-gate:0123456789ab: step 2 of 2: Debian\x1b[2J packages\n 1m12s`,
			"ai-sandbox: a word",
			"ai-sandbox: fetching node-v24.15.0-linux-x64.tar.xz: 4.0 of 4.0 MB 0s",
			"ai-sandbox: ai-sandbox-gate:0123456789ab: its first start 0s",
			"",
		}
		switch columns {
		case 80:
			want[0], want[1] = "ai-sandbox: ai-sandbox-gate:0123456789ab: step 1 of 2: FROM registry.examp… 12s", `ai-sandbox: ai-sandbox-gate:0123456789ab: step 2 of 2: Debian\x1b[2J pac… 1m12s`
		case 40:
			want = []string{"ai-sandbox: ai-sandbox-gate:012345… 12s", "ai-sandbox: ai-sandbox-gate:0123… 1m12s", want[2],
				"ai-sandbox: fetching node-v24.15.0-… 0s", "ai-sandbox: ai-sandbox-gate:0123456… 0s", ""}
		case 200:
			want[0] = "ai-sandbox: ai-sandbox-gate:0123456789ab: step 1 of 2: FROM registry.example.com/a/long/name@sha256:" + strings.Repeat("ab", 32) + " 12s"
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%d columns:\n%s\nwant\n%s", columns, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// Without a terminal: a line as a step begins, and one for a download.
func TestProgressPlain(t *testing.T) {
	var out bytes.Buffer
	p := &progress{w: &out, now: time.Now}
	p.lines = func(format string, a ...any) { fmt.Fprintf(&out, format+"\n", a...) }
	p.step("localhost/x:1", imagebuild.Step{N: 1, Of: 2, Text: "one"})
	p.download("file", 1, -1)
	p.download("file", 2, -1)
	p.step("localhost/x:1", imagebuild.Step{Text: "two"})
	p.close()
	if got := out.String(); got != "localhost/x:1: step 1 of 2: one\nfetching file\nlocalhost/x:1: two\n" {
		t.Error(got)
	}
}

// A build's own output is shown whole, and steers no terminal.
func TestProgressVerbose(t *testing.T) {
	var out bytes.Buffer
	p := &progress{w: &out, verbose: true}
	for _, part := range []string{"on", "e\ntwo\r\nthr\x1b[31mee\rx", "\n\nend"} {
		if n, err := p.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	p.close()
	if got := out.String(); got != "| one\n| two\n| thr\\x1b[31mee\\rx\n| \n| end\n" {
		t.Errorf("%q", got)
	}
	for _, s := range hostile.Strings {
		out.Reset()
		if _, err := p.Write([]byte(s + "\n" + strings.Repeat("x", maxShown))); err != nil {
			t.Fatal(err)
		}
		p.close()
		if err := hostile.Printed(out.String()); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
}
