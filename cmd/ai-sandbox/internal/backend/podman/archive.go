// Images on their way out of podman's store and into it.

package podman

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containers/podman/v5/pkg/bindings/images"

	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
)

var _ imagebuild.Archiver = (*Client)(nil)

// ExportImage writes an image as an OCI layout in a tar. Its configuration, and so its
// id, is as it was; its layers are compressed anew.
func (c *Client) ExportImage(ctx context.Context, id string, w io.Writer) error {
	conn, done := c.with(ctx)
	defer done()
	err := images.Export(conn, []string{id}, w, new(images.ExportOptions).WithFormat("oci-archive"))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("export image %.12s: %w", id, translate(err))
	}
	return nil
}

// fixArchive is what to do where a file of images is refused: podman judges it as what
// skopeo calls oci-archive, whatever base is in it.
const fixArchive = "have policy.json accept files of images (the transport oci-archive in containers-policy.json(5)), or build here"

// LoadImage puts the image of an OCI layout in a tar, as write makes it, into podman's
// store, and is over when podman is through with it: a caller whose context has ended
// stops it by an error of write, and knows afterwards what is in the store.
func (c *Client) LoadImage(ctx context.Context, write func(io.Writer) error) error {
	conn, done := c.with(context.WithoutCancel(ctx))
	defer done()
	err := whileGone(ctx, func() error {
		out, in := io.Pipe()
		written := make(chan struct{})
		go func() {
			defer close(written)
			in.CloseWithError(write(in))
		}()
		_, err := images.Load(conn, out)
		out.CloseWithError(errors.New("podman has stopped reading"))
		<-written
		return err
	})
	if err != nil {
		return refusal("what is loaded from a file", fixArchive, translate(err))
	}
	return nil
}
