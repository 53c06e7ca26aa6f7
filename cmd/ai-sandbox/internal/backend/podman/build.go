// Building images: what imagebuild asks of podman.

package podman

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containers/buildah/define"
	imagetypes "github.com/containers/image/v5/types"
	"github.com/containers/podman/v5/pkg/bindings/images"
	"github.com/containers/podman/v5/pkg/domain/entities/types"
	"github.com/containers/podman/v5/pkg/specgen"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/image"
)

var _ imagebuild.Builder = (*Client)(nil)

const (
	// cleanupTime bounds what is undone after the caller's context has ended.
	cleanupTime = 2 * time.Minute
	// primeTime bounds the copying of an image's layers, some seconds a gigabyte
	// on a quick disk.
	primeTime = 30 * time.Minute
)

// BuildImage builds the image in b.Dir without giving it a name, and returns its
// id. The base is fetched if podman does not have it, and never replaced by what
// its registry has today.
func (c *Client) BuildImage(ctx context.Context, b imagebuild.Build) (string, error) {
	conn, done := c.with(ctx)
	defer done()
	var report *types.BuildReport
	err := whileGone(ctx, func() (err error) { // each goes on with the layers that are there
		out := &buildOutput{log: b.Log, step: b.Step}
		report, err = images.Build(conn, []string{filepath.Join(b.Dir, "Containerfile")}, buildOptions(b, c.config.AuthFile, out))
		return errors.Join(err, out.close())
	})
	// The bindings return no error when the context ends.
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", refusal("the base", "", plainBuildError(err))
	}
	// The bindings take any line that begins with 12 hex digits for the id, a
	// program's output too: only an image with our label is ours.
	img, err := images.GetImage(conn, report.ID, nil)
	if err != nil {
		return "", fmt.Errorf("look at what was built: %w", err)
	}
	if want := b.Labels[image.LabelRecipe]; want == "" || img.Labels[image.LabelRecipe] != want {
		return "", fmt.Errorf("podman names %.12s as what it built, which is another image", report.ID)
	}
	return img.ID, nil
}

// whileGone puts an image into podman's store, or lists something of it, again where
// somebody has removed another one at that moment.
func whileGone(ctx context.Context, f func() error) error {
	err := f()
	for wait, end := storeWait, time.Now().Add(storeTime); err != nil && imageGone(err) && time.Now().Before(end); wait *= 2 {
		select {
		case <-time.After(min(wait, storeTime/20)):
		case <-ctx.Done():
			return err
		}
		err = f()
	}
	return err
}

const (
	// storeTime is how long that is begun again: somebody who removes many images can hit
	// each step of a build, and one of many layers is half there for a while.
	storeTime = time.Minute
	// storeWait is the time before the second try, which doubles up to three seconds.
	storeWait = 100 * time.Millisecond
)

// imageGone tells whether that is why it ended: podman looked through the other image for
// its layers or for what it is (storage.ErrLayerUnknown, ErrImageUnknown, and storage's
// transport, which says it in words of its own), or did not
// fetch a layer that was there, and of the other one alone (containers/image,
// storage_dest.go).
func imageGone(err error) bool {
	text := err.Error()
	return strings.Contains(text, "layer not known") || strings.Contains(text, "does not resolve to an image ID") || strings.Contains(text, "image not known") || strings.Contains(text, "layer for blob ") && strings.Contains(text, " not found")
}

// stepError is how podman reports a step that failed, with its whole text.
var stepError = regexp.MustCompile(`(?s)^building at STEP ".*": (?:while running runtime: )?`)

// plainBuildError takes the step's text out of an error: the caller knows the
// step, and its text is a page long.
func plainBuildError(err error) error {
	text := strings.TrimSpace(err.Error())
	return errors.New(strings.TrimPrefix(text, stepError.FindString(text)))
}

// buildOptions is everything that a build is asked with. Layers are kept, so
// that a build which differs in the entrypoint makes one layer.
func buildOptions(b imagebuild.Build, authFile string, out io.Writer) types.BuildOptions {
	labels := make([]string, 0, len(b.Labels))
	for k, v := range b.Labels {
		labels = append(labels, k+"="+v)
	}
	// Sorted: the cache compares the instruction that they become.
	slices.Sort(labels)
	return types.BuildOptions{BuildOptions: define.BuildOptions{
		ContextDirectory:        b.Dir,
		Labels:                  labels,
		LayerLabels:             []string{image.LabelBuild + "=" + b.Mark},
		NoCache:                 b.NoCache,
		Layers:                  true,
		PullPolicy:              define.PullIfMissing,
		OutputFormat:            define.OCIv1ImageManifest,
		RemoveIntermediateCtrs:  true,
		ForceRmIntermediateCtrs: true,
		Out:                     out,
		// The bindings send credentials only where this is set; a service may
		// have been started without them.
		SystemContext: &imagetypes.SystemContext{AuthFilePath: authFile},
		CommonBuildOpts: &define.CommonBuildOptions{
			// A proxy that podman's service needs is needed by apt and npm,
			// and stays out of the image.
			HTTPProxy: true,
			// By this the commands of its steps are found again (see EndBuild).
			AddHost: []string{markHost(b.Mark) + ":127.0.0.1"},
		},
	}}
}

// stepLine is how a build announces a step.
var stepLine = regexp.MustCompile(`^STEP ([0-9]+)/([0-9]+): (.*)$`)

// buildOutput passes a build's output on to a log, and its steps to a function.
type buildOutput struct {
	log  io.Writer
	step func(imagebuild.Step)
	line []byte
	err  error
}

// maxLine is how much of a line is looked at.
const maxLine = 64 << 10

func (o *buildOutput) Write(p []byte) (int, error) {
	if o.err == nil {
		_, o.err = o.log.Write(p)
	}
	for _, c := range p {
		switch {
		case c == '\n':
			o.endLine()
		case len(o.line) < maxLine:
			o.line = append(o.line, c)
		}
	}
	return len(p), nil // the bindings do not look
}

func (o *buildOutput) endLine() {
	m := stepLine.FindSubmatch(o.line)
	o.line = o.line[:0]
	if m == nil || o.step == nil {
		return
	}
	n, _ := strconv.Atoi(string(m[1])) // digits, by stepLine
	of, _ := strconv.Atoi(string(m[2]))
	o.step(imagebuild.Step{N: n, Of: of, Text: image.StepName(string(m[3]))})
}

// close tells of a log that could not be written.
func (o *buildOutput) close() error {
	if o.err != nil {
		return fmt.Errorf("keep the build's output: %w", o.err)
	}
	return nil
}

// ImageExists asks podman's store; no registry is asked.
func (c *Client) ImageExists(ctx context.Context, id string) (bool, error) {
	conn, done := c.with(ctx)
	defer done()
	ok, err := images.Exists(conn, id, nil)
	if err != nil {
		return false, fmt.Errorf("look for image %.12s: %w", id, err)
	}
	return ok, nil
}

// TagImage names an image, taking the name from one that has it.
func (c *Client) TagImage(ctx context.Context, id, ref string) error {
	conn, done := c.with(ctx)
	defer done()
	repo, tag, ok := strings.Cut(ref, ":")
	if !ok {
		return fmt.Errorf("tag image %.12s: %q has no tag", id, ref)
	}
	if err := images.Tag(conn, id, tag, repo, nil); err != nil {
		return fmt.Errorf("tag image %.12s: %w", id, err)
	}
	return nil
}

// RemoveImage removes an image that no container uses and that has no name of
// somebody else's. One that is not there is no error.
func (c *Client) RemoveImage(ctx context.Context, id string) error {
	conn, done := c.with(ctx)
	defer done()
	if _, errs := images.Remove(conn, []string{id}, nil); len(errs) > 0 {
		// Podman takes what it was built on along, and fails where another build works in
		// that: the image itself has gone then.
		if there, err := images.Exists(conn, id, nil); err == nil && !there {
			return nil
		}
		return fmt.Errorf("remove image %.12s: %w", id, errors.Join(errs...))
	}
	return nil
}

// PrimeImage runs the image's entrypoint once, with no network, under the
// mapping of users that runs have: podman copies an image's layers the first
// time that they are mapped so.
func (c *Client) PrimeImage(ctx context.Context, id string) (err error) {
	// One process at a time primes an image, so what has the name was left by
	// one that was killed.
	s := primeSpec(id)
	if err := c.Remove(ctx, s.Name); err != nil {
		return err
	}
	drop, err := c.claim(ctx, s.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	container, err := c.create(ctx, s, primeTime)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := c.Start(ctx, container); err != nil {
		return err
	}
	code, err := c.Exit(ctx, container)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("its entrypoint ends with %d where it was only to tell its version", code)
	}
	return nil
}

// primeSpec is a container that tells the entrypoint's version.
func primeSpec(id string) *specgen.SpecGenerator {
	s := base(id, fmt.Sprintf("aisb-prime-%.12s", id), map[string]string{backend.LabelKind: "prime"})
	s.Command = []string{"version"}
	s.User = "0:0"
	s.NetNS = specgen.Namespace{NSMode: specgen.NoNetwork}
	return s
}
