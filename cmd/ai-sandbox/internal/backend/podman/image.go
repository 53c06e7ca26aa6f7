// Images that are there: what is asked of them, and of their registry.

package podman

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/containers"
	"github.com/containers/podman/v5/pkg/bindings/images"
	"github.com/containers/podman/v5/pkg/inspect"
	"github.com/containers/podman/v5/pkg/specgen"
	"github.com/opencontainers/go-digest"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/image"
)

// Bounds on what is read from an image or a container of it, in bytes, and on how
// long a script may take.
const (
	maxOutput  = 16 << 20
	maxScript  = 10 * time.Minute
	keptErrors = 2 << 10
)

// PullBase has podman fetch what ref's tag leads to, and returns its digest: that
// of the index where it is an image of several architectures.
func (c *Client) PullBase(ctx context.Context, ref image.Reference) (digest.Digest, error) {
	conn, done := c.with(ctx)
	defer done()
	before, err := listImages(conn)
	if err != nil {
		return "", err
	}
	o := new(images.PullOptions).WithPolicy("always").WithQuiet(true).WithRetry(0).WithAuthfile(c.config.AuthFile)
	var ids []string
	err = whileGone(ctx, func() (err error) {
		ids, err = images.Pull(conn, ref.String(), o)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("pull %s: %w", ref, refusal(ref.String(), "", err))
	case len(ids) != 1:
		return "", fmt.Errorf("pull %s: podman names %d images", ref, len(ids))
	}
	after, err := listImages(conn)
	if err != nil {
		return "", err
	}
	d, err := pulledDigest(ref, before[ids[0]], after[ids[0]])
	if err != nil {
		return "", fmt.Errorf("pull %s: %w", ref, err)
	}
	return d, nil
}

// refusedByPolicy is what containers/image puts before why policy.json does not accept
// an image (copy/single.go).
const refusedByPolicy = "Source image rejected: "

// refusal makes an image.RefusedError of such an error of podman's. The fix is the next
// thing to do, or "" for the usual one.
func refusal(what, fix string, err error) error {
	if _, why, ok := strings.Cut(err.Error(), refusedByPolicy); ok {
		return &image.RefusedError{Ref: what, Why: errors.New(why), Fix: fix}
	}
	return err
}

// known is how podman knows an image.
type known struct {
	// made is the digest that it was first pulled by: of the index, if there was one.
	made digest.Digest
	// all are those that it was ever pulled by, and its own, each with every
	// repository: host/path@digest.
	all []string
}

// listImages are all images, by their ids.
func listImages(conn context.Context) (map[string]*known, error) {
	list, err := allImages(conn, nil)
	if err != nil {
		return nil, fmt.Errorf("list the images: %w", err)
	}
	out := map[string]*known{}
	for _, img := range list {
		out[img.ID] = &known{digest.Digest(img.Digest), img.RepoDigests}
	}
	return out, nil
}

// pulledDigest finds the digest that a pull followed: that of the index, for an image of
// several architectures. Of an image that was there before, podman may know others, and
// does not say which of them is meant; then none counts, as it may be of another
// repository.
func pulledDigest(ref image.Reference, before, after *known) (digest.Digest, error) {
	digests := func(k *known) map[digest.Digest]bool {
		m := map[digest.Digest]bool{}
		if k != nil {
			for _, s := range k.all {
				if _, d, ok := strings.Cut(s, "@"); ok {
					m[digest.Digest(d)] = true
				}
			}
		}
		return m
	}
	if after == nil {
		return "", errors.New("podman does not list what it pulled")
	}
	now, then := digests(after), digests(before)
	var fresh []digest.Digest
	for d := range now {
		if !then[d] {
			fresh = append(fresh, d)
		}
	}
	var d digest.Digest
	switch {
	case before == nil, len(fresh) == 0 && len(now) <= 2: // with its own, it has one index at most
		d = after.made
	case len(fresh) == 1:
		d = fresh[0]
	default:
		return "", fmt.Errorf("podman knows the image by %d digests, and not which of them it is: remove it with podman rmi, and try again", len(now))
	}
	_, err := ref.Pin(d)
	return d, err
}

// RunScript runs a shell script as root in a container of an image, on the network
// that builds have, and returns what it wrote to standard output. Nothing that it
// changes stays.
func (c *Client) RunScript(ctx context.Context, id, script string) (out []byte, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxScript, fmt.Errorf("it took longer than %s", maxScript))
	defer cancel()
	s := scriptSpec(id, script)
	drop, err := c.claim(ctx, s.Name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	container, _, err := c.createMapped(ctx, s, primeTime)
	if err != nil {
		return nil, err
	}
	stdout, stderr := &bounded{limit: maxOutput}, &bounded{limit: keptErrors, last: true}
	var npm image.NPMOutput
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		// Not in the specification, which podman keeps and shows.
		in := strings.NewReader(strings.Join(append(c.config.Proxy, ""), "\n"))
		ended <- c.Attach(ctx, container, false, backend.Streams{Stdin: in, Stdout: stdout, Stderr: io.MultiWriter(stderr, &npm)}, ready)
	}()
	select {
	case <-ready:
	case err := <-ended:
		return nil, err
	}
	if err := c.Start(ctx, container); err != nil {
		return nil, err
	}
	code, err := c.Exit(ctx, container)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err = errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	switch {
	case code != 0 && npm.Failure() != "":
		return nil, errors.New(npm.Failure())
	case code != 0:
		return nil, fmt.Errorf("it ended with %d: %s", code, lastLines(stderr.buf.String()))
	case stdout.over:
		return nil, fmt.Errorf("it wrote more than %d MiB", maxOutput>>20)
	}
	return stdout.buf.Bytes(), nil
}

// lastLines are the last three, in one.
func lastLines(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// A bounded buffer keeps the first bytes, or the last ones.
type bounded struct {
	buf   bytes.Buffer
	limit int
	last  bool
	over  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := len(p)
	switch room := b.limit - b.buf.Len(); {
	case b.last:
		b.buf.Write(p)
		b.buf.Next(max(0, b.buf.Len()-b.limit))
	case room < n:
		b.over = true
		b.buf.Write(p[:max(0, room)])
	default:
		b.buf.Write(p)
	}
	return n, nil
}

// readVariables sets the variables that come as lines of standard input, of which the
// script itself gets nothing.
const readVariables = `while IFS= read -r line; do export "$line"; done; exec </dev/null; `

// scriptSpec is a container like those of a build: root with what package managers
// need, a root file system that can be written, and a way out. The machine's own
// loopback is not reached from it.
func scriptSpec(id, script string) *specgen.SpecGenerator {
	s := base(id, lookName(), map[string]string{backend.LabelKind: "look"})
	yes, no := true, false
	s.Entrypoint = []string{"/bin/sh", "-c"}
	s.Command = []string{readVariables + script}
	s.Stdin = &yes
	s.User = "0:0"
	s.Env = map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	s.ReadOnlyFilesystem = &no
	// The base's own variables count in a build: one may name another registry.
	s.UnsetEnvAll = &no
	s.CapAdd = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}
	s.NetNS = specgen.Namespace{NSMode: specgen.Pasta}
	s.NetworkOptions = map[string][]string{"pasta": {"-t", "none", "-u", "none", "-T", "none", "-U", "none"}}
	return s
}

// claim is called before a container is made that ends with the call. drop removes
// the container, if there is one, and the record of it.
func (c *Client) claim(ctx context.Context, name string) (drop func() error, err error) {
	release := func() error { return nil }
	if c.config.Claim != nil {
		if release, err = c.config.Claim(name); err != nil {
			return nil, err
		}
	}
	return func() error {
		// The caller's context may have ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		if err := c.Remove(ctx, name); err != nil {
			return err // and the record stays
		}
		return release()
	}, nil
}

// lookName is of no other container.
func lookName() string { return "aisb-look-" + strings.ToLower(rand.Text()[:12]) }

// lookInto makes a container of an image that is never started, and calls look with it.
func (c *Client) lookInto(ctx context.Context, id string, look func(conn context.Context, container string) error) (err error) {
	s := primeSpec(id)
	s.Name = lookName()
	// With the mapping of runs, podman would first copy the image's layers.
	s.UserNS = specgen.Namespace{NSMode: specgen.Host}
	drop, err := c.claim(ctx, s.Name)
	if err != nil {
		return fmt.Errorf("look into image %.12s: %w", id, err)
	}
	defer func() { err = errors.Join(err, drop()) }()
	container, err := c.createOnce(ctx, s, createTime)
	if err != nil {
		return fmt.Errorf("look into image %.12s: %w", id, err)
	}
	conn, done := c.with(ctx)
	defer done()
	return look(conn, container)
}

// ImageFiles writes all files of an image as a tar. Nothing of the image is run.
func (c *Client) ImageFiles(ctx context.Context, id string, w io.Writer) error {
	return c.lookInto(ctx, id, func(conn context.Context, container string) error {
		err := containers.Export(conn, container, w, nil)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("read the files of image %.12s: %w", id, translate(err))
		}
		return nil
	})
}

// ReadImageFile reads a file of an image. Nothing of the image is run.
func (c *Client) ReadImageFile(ctx context.Context, id, path string) (data []byte, err error) {
	archive := &bounded{limit: maxOutput}
	err = c.lookInto(ctx, id, func(conn context.Context, container string) error {
		copyOut, err := containers.CopyToArchive(conn, container, path, archive)
		if err == nil {
			err = copyOut()
		}
		if err != nil {
			return fmt.Errorf("read %s from image %.12s: %w", path, id, translate(err))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t := tar.NewReader(&archive.buf)
	head, err := t.Next()
	if err == nil && head.Typeflag != tar.TypeReg {
		err = errors.New("it is not a regular file")
	}
	if err == nil {
		data, err = io.ReadAll(t)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s from image %.12s: %w", path, id, err)
	}
	return data, nil
}

// InspectImage tells of an image by its name, or by its id or the beginning of it.
// No registry is asked.
func (c *Client) InspectImage(ctx context.Context, name string) (imagebuild.Found, error) {
	conn, done := c.with(ctx)
	defer done()
	data, err := images.GetImage(conn, name, nil)
	if err != nil {
		return imagebuild.Found{}, fmt.Errorf("look at image %s: %w", name, translate(err))
	}
	return found(data.ImageData), nil
}

func found(data *inspect.ImageData) imagebuild.Found {
	f := imagebuild.Found{ID: data.ID, Names: slices.Clone(data.RepoTags), Digests: slices.Clone(data.RepoDigests), Labels: data.Labels, Size: data.Size}
	if data.Created != nil {
		f.Created = *data.Created
	}
	return f
}
