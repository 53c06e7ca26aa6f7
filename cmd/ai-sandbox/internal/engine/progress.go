// Showing how a build comes on. On a terminal each step has a line, which is drawn
// anew with the time that it takes; elsewhere the line is written as it begins.

package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"
	"golang.org/x/term"

	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/image"
	"ai-sandbox/image/registry"
	"ai-sandbox/policy"
)

const (
	// redraw is how often the line of a step is looked at.
	redraw = 200 * time.Millisecond
	// usualColumns is a terminal's width where it does not tell.
	usualColumns = 80
)

// A progress tells people of the steps. All of its methods may be called at once.
type progress struct {
	w     io.Writer
	lines func(string, ...any)
	log   func(io.Writer) io.WriteCloser
	// columns is the terminal's width; nil where there is none to draw on.
	columns func() int
	now     func() time.Time
	// verbose: a build's own output is shown.
	verbose bool

	mu    sync.Mutex
	text  string // of the line that is drawn, or ""
	drawn string // as it stands there
	began time.Time
	done  chan struct{} // closed to end the redrawing
	told  string        // the file whose fetching was told of
	rest  []byte        // of the output: a line without its end
}

func newProgress(m cli.Machine, verbose bool) *progress {
	p := &progress{w: m.Std.Err, lines: say(m), log: m.HideIn, now: time.Now, verbose: verbose}
	// terminfo(5): a dumb terminal can't go back to a line's beginning.
	if f, ok := m.Std.Err.(*os.File); ok && !verbose && term.IsTerminal(int(f.Fd())) && m.Environ["TERM"] != "dumb" {
		p.columns = func() int {
			if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
				return n
			}
			return usualColumns
		}
	}
	return p
}

func (p *progress) say(format string, a ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	p.lines(format, a...)
}

func (p *progress) step(ref string, s imagebuild.Step) {
	text := s.Text
	if s.N > 0 {
		text = fmt.Sprintf("step %d of %d: %s", s.N, s.Of, s.Text)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	if p.columns == nil {
		p.lines("%s: %s", ref, text)
		return
	}
	p.begin(policy.Printable(strings.TrimPrefix(ref, "localhost/") + ": " + text))
}

// download is called again and again; total is -1 when it isn't known.
func (p *progress) download(name string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.columns == nil {
		if p.told != name {
			p.told = name
			p.lines("fetching %s", name)
		}
		return
	}
	text := fmt.Sprintf("fetching %s: %.1f MB", policy.Printable(name), float64(done)/1e6)
	if total >= 0 {
		text = fmt.Sprintf("fetching %s: %.1f of %.1f MB", policy.Printable(name), float64(done)/1e6, float64(total)/1e6)
	}
	if p.told != name {
		p.told = name
		p.end()
		p.begin(text)
	}
	p.text = text // drawn by the clock: it changes with each packet
}

// begin draws a line, and keeps it up to date until end. p.mu is held.
func (p *progress) begin(text string) {
	p.text, p.began, p.done = text, p.now(), make(chan struct{})
	p.draw()
	go func(done chan struct{}) {
		tick := time.NewTicker(redraw)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			p.mu.Lock()
			if p.done == done {
				p.draw()
			}
			p.mu.Unlock()
		}
	}(p.done)
}

// end leaves the line as it is at last; what follows begins on the next. p.mu is held.
func (p *progress) end() {
	if p.done == nil {
		return
	}
	p.draw()
	close(p.done)
	p.done, p.text, p.drawn = nil, "", ""
	fmt.Fprintln(p.w)
}

// draw writes the line over the one that is there. p.mu is held.
func (p *progress) draw() {
	line := fitted("ai-sandbox: "+p.text, p.now().Sub(p.began).Truncate(time.Second).String(), p.columns())
	if line == p.drawn {
		return
	}
	p.drawn = line
	fmt.Fprintf(p.w, "\r%s\x1b[K", line) // and nothing behind it (console_codes(4), EL)
}

// fitted is a text with a word behind it, in less than so many columns: a line that
// is full would go on in the next, and could not be drawn anew.
func fitted(text, word string, columns int) string {
	room := columns - 1 - len(word) - 1
	if width(text) > room {
		for width(text) > max(room-1, 0) {
			_, n := utf8.DecodeLastRuneInString(text)
			text = text[:len(text)-n]
		}
		text += "…"
	}
	return text + " " + word
}

// width is how many columns a text takes at most.
func width(s string) int {
	n := 0
	for _, r := range s {
		if n++; r > 0x2ff && r != '…' { // East Asian characters take two
			n++
		}
	}
	return n
}

// maxShown is how much of a line of a build's output is waited for.
const maxShown = 64 << 10

// Write shows a build's output, with what could steer a terminal made visible.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, b...)
	for {
		line, rest, whole := bytes.Cut(p.rest, []byte("\n"))
		if !whole && len(p.rest) < maxShown {
			return len(b), nil
		}
		p.rest = rest
		if err := p.show(line); err != nil {
			return 0, err
		}
	}
}

func (p *progress) show(line []byte) error {
	// With a mark, as it may have lines like ours.
	_, err := fmt.Fprintln(p.w, "| "+policy.Printable(strings.TrimSuffix(string(line), "\r")))
	return err
}

// close ends the line that is drawn, and shows what is left of the output.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	if len(p.rest) > 0 {
		_ = p.show(p.rest) // the command ends, and says how by its exit code
		p.rest = nil
	}
}

// options are those of a build that is shown so.
func (p *progress) options(env config.Environ) imagebuild.Options {
	o := imagebuild.Options{Say: p.say, Step: p.step, Download: p.download, Resolve: resolver(env), Accept: accepter(env), Log: p.log}
	if p.verbose {
		o.Output = p
	}
	return o
}

// resolver asks a registry as podman would: with the configuration and credentials
// that its variables name, or those in its own places (containers-registries.conf(5),
// containers-auth.json(5)).
func resolver(env config.Environ) func(context.Context, image.Reference) (digest.Digest, error) {
	o := registryOptions(env)
	return func(ctx context.Context, ref image.Reference) (digest.Digest, error) {
		d, err := registry.Resolve(ctx, ref, o)
		return d, asked(err)
	}
}

// accepter asks whether policy.json accepts what a tag was pinned to.
func accepter(env config.Environ) func(context.Context, image.Reference, digest.Digest) error {
	o := registryOptions(env)
	return func(ctx context.Context, tag image.Reference, pinned digest.Digest) error {
		return asked(registry.Accept(ctx, tag, pinned, o))
	}
}

// asked is the error of a question to a registry; a refusal stays as it is.
func asked(err error) error {
	var refused *image.RefusedError
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("ask the registry: %w", err)
}

func registryOptions(env config.Environ) registry.Options {
	return registry.Options{
		RegistriesConf: cmp.Or(env["CONTAINERS_REGISTRIES_CONF"], env["REGISTRIES_CONFIG_PATH"]),
		AuthFile:       env["REGISTRY_AUTH_FILE"],
	}
}
