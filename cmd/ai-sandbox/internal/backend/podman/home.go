// The home volume before a container has it.

package podman

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/containers/podman/v5/pkg/bindings/volumes"

	"ai-sandbox/cmd/ai-sandbox/internal/tree"
	"ai-sandbox/policy"
)

// homePoints makes the directories of the home that something is mounted on. The
// OCI runtime would make them as the container's root, which the sandbox's user
// could not change afterwards; and it follows a link there, within the container.
// A sandbox has written the volume: none is followed here.
//
// With root kept the volume must not be empty: podman gives an empty one to the
// user that has the image's home, who is nobody's then.
func (c *Client) homePoints(ctx context.Context, p policy.Policy) error {
	home := p.Home
	points := home.Points
	if p.KeepRoot {
		points = append(slices.Clone(points), ".cache")
	}
	if len(points) == 0 {
		return nil
	}
	conn, cancel := c.with(ctx)
	defer cancel()
	v, err := volumes.Inspect(conn, home.Volume, nil)
	if err != nil {
		return fmt.Errorf("look at the home volume %s: %w", home.Volume, translate(err))
	}
	if err := firstMode(v.Mountpoint); err != nil {
		return fmt.Errorf("make the home volume %s private: %w", home.Volume, err)
	}
	for _, p := range points {
		if err := tree.MakePoint(v.Mountpoint, p, true); err != nil {
			return fmt.Errorf("make the mount point %s in the home volume %s: %w", policy.Quote(p), home.Volume, err)
		}
	}
	return nil
}

// checkMasks makes sure that each unix socket that is covered is still there.
func checkMasks(mounts []policy.Mount) error {
	for i, m := range mounts {
		up, ok := policy.Above(mounts[:i], m.Target)
		if m.Why != policy.WhyMasked || !ok || up.Kind != policy.KindBind {
			continue
		}
		if err := tree.SocketAt(up.Source, strings.TrimPrefix(m.Target, up.Target+"/")); err != nil {
			return fmt.Errorf("mask the unix socket %s: %w; try again", policy.Quote(m.Target), err)
		}
	}
	return nil
}

// firstMode gives a volume that nobody has used yet the mode of the image's home.
// podman does so only for an empty one.
func firstMode(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err := d.Readdirnames(1); !errors.Is(err, io.EOF) {
		return err
	}
	return d.Chmod(0o700)
}
