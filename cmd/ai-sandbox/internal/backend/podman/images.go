// All images of ours, and what podman says that uses them.

package podman

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/containers"
	"github.com/containers/podman/v5/pkg/bindings/images"
	"github.com/containers/podman/v5/pkg/domain/entities/types"

	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/image"
)

// ListImages are all images with our label, but for those that are only there as
// layers of others.
func (c *Client) ListImages(ctx context.Context) ([]imagebuild.Found, error) {
	conn, done := c.with(ctx)
	defer done()
	list, err := allImages(conn, new(images.ListOptions).WithFilters(map[string][]string{"label": {image.LabelRecipe}}))
	if err != nil {
		return nil, fmt.Errorf("list the images: %w", translate(err))
	}
	var out []imagebuild.Found
	for _, img := range list {
		switch img.Labels[image.LabelRecipe] {
		case "", image.TrialRecipe: // a base that a test has made of one of ours; one that a trial removes
			continue
		}
		out = append(out, imagebuild.Found{
			ID: img.ID, Names: slices.Clone(img.RepoTags), Digests: slices.Clone(img.RepoDigests), Labels: img.Labels,
			Created: time.Unix(img.Created, 0).UTC(), Size: img.Size,
		})
	}
	return out, nil
}

// allImages are those that the options ask for. Podman looks each one up after it has made
// the list.
func allImages(conn context.Context, options *images.ListOptions) (list []*types.ImageSummary, err error) {
	err = whileGone(conn, func() (err error) {
		list, err = images.List(conn, options)
		return err
	})
	return list, err
}

// allContainers are podman's own and those of others, such as of builds. podman looks each
// one's image up after it has made the list.
func allContainers(conn context.Context) (list []types.ListContainer, err error) {
	err = whileGone(conn, func() (err error) {
		list, err = containers.List(conn, new(containers.ListOptions).WithAll(true).WithExternal(true))
		return err
	})
	return list, err
}

// ImageUsers are the names of the containers, of anybody's, that use an image, by the
// images' ids.
func (c *Client) ImageUsers(ctx context.Context) (map[string][]string, error) {
	conn, done := c.with(ctx)
	defer done()
	list, err := allContainers(conn)
	if err != nil {
		return nil, fmt.Errorf("list the containers: %w", translate(err))
	}
	out := map[string][]string{}
	for _, l := range list {
		name := l.ID
		if len(l.Names) > 0 {
			name = l.Names[0]
		}
		out[l.ImageID] = append(out[l.ImageID], name)
	}
	return out, nil
}
