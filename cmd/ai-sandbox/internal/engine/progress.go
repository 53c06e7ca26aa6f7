// Showing how a build comes on: a bar for a download and a line a step.

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/opencontainers/go-digest"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/image"
	"ai-sandbox/image/registry"
	"ai-sandbox/policy"
)

// A progress writes lines, and a bar where there is a terminal to draw it on.
type progress struct {
	w        io.Writer
	lines    func(string, ...any)
	log      func(io.Writer) io.WriteCloser
	terminal bool
	bars     *mpb.Progress
	bar      *mpb.Bar
	told     bool
}

func newProgress(m cli.Machine) *progress {
	f, ok := m.Std.Err.(*os.File) // a bar is drawn on the terminal itself
	return &progress{w: m.Std.Err, lines: say(m), log: m.HideIn, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

func (p *progress) say(format string, a ...any) {
	p.close()
	p.lines(format, a...)
}

func (p *progress) step(ref string, s imagebuild.Step) {
	p.say("%s: step %d of %d: %s", ref, s.N, s.Of, policy.Printable(s.Text))
}

// download is called again and again; total is -1 when it isn't known.
func (p *progress) download(name string, done, total int64) {
	if !p.terminal {
		if !p.told {
			p.told = true
			p.lines("fetching %s", policy.Printable(name))
		}
		return
	}
	if p.bar == nil {
		p.bars = mpb.New(mpb.WithOutput(p.w), mpb.WithWidth(40))
		p.bar = p.bars.AddBar(max(total, 0),
			mpb.PrependDecorators(decor.Name("ai-sandbox: fetching "+policy.Printable(name)+" ")),
			mpb.AppendDecorators(decor.CountersKibiByte("% .1f / % .1f")))
	}
	p.bar.SetCurrent(done)
}

// close ends the bar; what follows begins on a line of its own.
func (p *progress) close() {
	if p.bar == nil {
		return
	}
	p.bar.Abort(false)
	p.bars.Wait()
	p.bar, p.bars = nil, nil
}

// options are those of a build that is shown so.
func (p *progress) options(env config.Environ) imagebuild.Options {
	return imagebuild.Options{Say: p.say, Step: p.step, Download: p.download, Resolve: resolver(env), Log: p.log}
}

// resolver asks a registry as podman would: with the configuration and credentials
// that its variables name, or those in its own places (containers-registries.conf(5),
// containers-auth.json(5)).
func resolver(env config.Environ) func(context.Context, image.Reference) (digest.Digest, error) {
	o := registryOptions(env)
	return func(ctx context.Context, ref image.Reference) (digest.Digest, error) {
		d, err := registry.Resolve(ctx, ref, o)
		var refused *image.RefusedError
		if err != nil && !errors.As(err, &refused) {
			err = fmt.Errorf("ask the registry: %w", err)
		}
		return d, err
	}
}

func registryOptions(env config.Environ) registry.Options {
	return registry.Options{
		RegistriesConf: cmp.Or(env["CONTAINERS_REGISTRIES_CONF"], env["REGISTRIES_CONFIG_PATH"]),
		AuthFile:       env["REGISTRY_AUTH_FILE"],
	}
}
