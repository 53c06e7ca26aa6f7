// The calls that carry the specifications out.

package podman

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/containers/podman/v5/libpod/define"
	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/containers/podman/v5/pkg/bindings/containers"
	"github.com/containers/podman/v5/pkg/bindings/volumes"
	entities "github.com/containers/podman/v5/pkg/domain/entities/types"
	"github.com/containers/podman/v5/pkg/specgen"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/policy"
)

var _ backend.Backend = (*Client)(nil)

// Capabilities implements backend.Backend.
func (c *Client) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Runtime: policy.RuntimePodman, Isolation: policy.IsolationContainer, Limits: backend.LimitNames,
		Networks:    []string{policy.NetGated, policy.NetUnix, policy.NetNone},
		GateEngines: []string{policy.EngineSquid, policy.EngineBuiltin},
		Publishing:  true,
		VerifyEarly: true,
	}
}

// translate makes podman's 404 a backend.ErrNotExist. CheckResponseCode looks
// at the unwrapped value, so this comes before any wrapping.
func translate(err error) error {
	if err == nil {
		return nil
	}
	if code, cerr := bindings.CheckResponseCode(err); cerr == nil && code == http.StatusNotFound {
		return fmt.Errorf("%w: %w", backend.ErrNotExist, err)
	}
	return err
}

func (c *Client) EnsureHome(ctx context.Context, name, session string, labels map[string]string) (string, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), createTime) // as create
	defer stop()
	conn, cancel := c.with(ctx)
	defer cancel()
	want := labels[backend.LabelProject]
	v, err := volumes.Inspect(conn, name, nil)
	if err := translate(err); err == nil {
		if v.Labels[backend.LabelKind] != "home" {
			return "", fmt.Errorf("the volume %s is there but was not made by ai-sandbox: remove it or rename it", name)
		}
		// The name has only part of a hash of the project's path.
		if got := v.Labels[backend.LabelProject]; got != want {
			return "", fmt.Errorf("the home volume %s belongs to the project %q: remove it with podman volume rm, or use --ephemeral-home", name, got)
		}
		return v.Labels[backend.LabelHomeLayout], nil
	} else if !errors.Is(err, backend.ErrNotExist) {
		return "", fmt.Errorf("look at the home volume %s: %w", name, err)
	}
	all := map[string]string{backend.LabelKind: "home"}
	for k, v := range labels {
		all[k] = v
	}
	if session != "" {
		all[backend.LabelSession] = session
	}
	v, err = volumes.Create(conn, entities.VolumeCreateOptions{Name: name, Labels: all}, nil)
	if err != nil {
		// Another start of the same project may have made it just now.
		again, ierr := volumes.Inspect(conn, name, nil)
		if ierr == nil && again.Labels[backend.LabelKind] == "home" && again.Labels[backend.LabelProject] == want {
			return again.Labels[backend.LabelHomeLayout], nil
		}
		return "", fmt.Errorf("make the home volume %s: %w", name, err)
	}
	return v.Labels[backend.LabelHomeLayout], nil
}

// createTries bounds how often a container with a broken mapping is made anew.
const createTries = 5

// createTime bounds the making of a container or volume.
const createTime = time.Minute

// create makes a container, one at a time for this user: podman's service reads
// the subordinate ids with a library that is not safe for two requests at once
// (libsubid), and then maps one id only. Another program's podman can still do
// that to us, so the mapping is read back.
//
// The wait for the others can be cancelled. The making, which limit bounds, is
// not: the service would finish what nobody waits for, and leave a container that
// was not there to remove.
func (c *Client) create(ctx context.Context, s *specgen.SpecGenerator, limit time.Duration) (string, error) {
	id, data, err := c.createMapped(ctx, s, limit)
	if err != nil {
		return id, err
	}
	// Again when it runs; but here it is known before anything does.
	return id, c.refuse(differences(data, s))
}

// createMapped is the same for a container that holds nobody: of what podman made,
// only the mapping is looked at.
func (c *Client) createMapped(ctx context.Context, s *specgen.SpecGenerator, limit time.Duration) (string, *define.InspectContainerData, error) {
	for range createTries {
		id, err := c.createOnce(ctx, s, limit)
		if err != nil {
			return "", nil, fmt.Errorf("create the container %s: %w", s.Name, err)
		}
		data, err := c.inspect(ctx, id)
		if err != nil {
			return id, nil, fmt.Errorf("look at the container %s: %w", s.Name, err)
		}
		if mapsUsers(data, userOf(s)) {
			return id, data, nil
		}
		if err := c.Remove(context.WithoutCancel(ctx), id); err != nil {
			return "", nil, err
		}
	}
	return "", nil, fmt.Errorf("create the container %s: podman does not map its users as asked for: check your ranges in /etc/subuid and /etc/subgid with ai-sandbox doctor", s.Name)
}

// createOnce holds the lock for no longer than podman makes the container.
func (c *Client) createOnce(ctx context.Context, s *specgen.SpecGenerator, limit time.Duration) (string, error) {
	unlock, err := flock(ctx, c.createLock)
	if err != nil {
		return "", err
	}
	defer unlock()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer stop()
	conn, cancel := c.with(ctx)
	defer cancel()
	r, err := containers.CreateWithSpec(conn, s, nil)
	if err != nil {
		return "", translate(err)
	}
	return r.ID, nil
}

func (c *Client) inspect(ctx context.Context, id string) (*define.InspectContainerData, error) {
	conn, cancel := c.with(ctx)
	defer cancel()
	data, err := containers.Inspect(conn, id, nil)
	return data, translate(err)
}

// mapsUsers tells whether the container's user is the one that podman runs as
// (0 in the namespace of the service), and its root, if it is not that user, is
// somebody else.
func mapsUsers(data *define.InspectContainerData, user int) bool {
	if data.HostConfig == nil || data.HostConfig.IDMappings == nil {
		return false
	}
	maps := func(lines []string, id int) bool {
		root := id == 0
		user := slices.Contains(lines, fmt.Sprintf("%d:0:1", id))
		for _, l := range lines {
			if rest, ok := strings.CutPrefix(l, "0:"); ok && id != 0 {
				root = !strings.HasPrefix(rest, "0:")
			}
		}
		return root && user
	}
	return maps(data.HostConfig.IDMappings.UIDMap, user) && maps(data.HostConfig.IDMappings.GIDMap, user)
}

func (c *Client) CreateSandbox(ctx context.Context, b backend.Sandbox) (string, error) {
	s, err := sandboxSpec(b)
	if err != nil {
		return "", err
	}
	if err := c.homePoints(ctx, b.Policy); err != nil {
		return "", err
	}
	if err := checkMasks(b.Policy.Mounts); err != nil {
		return "", err
	}
	return c.create(ctx, s, createTime)
}

func (c *Client) CreateGate(ctx context.Context, g backend.Gate) (string, error) {
	return c.create(ctx, gateSpec(g), createTime)
}

func (c *Client) Start(ctx context.Context, id string) error {
	conn, cancel := c.with(ctx)
	defer cancel()
	if err := containers.Start(conn, id, nil); err != nil {
		return fmt.Errorf("start the container %.12s: %w", id, translate(err))
	}
	return nil
}

func (c *Client) Resize(ctx context.Context, id string, cols, rows int) error {
	conn, cancel := c.with(ctx)
	defer cancel()
	o := new(containers.ResizeTTYOptions).WithHeight(rows).WithWidth(cols)
	if err := containers.ResizeContainerTTY(conn, id, o); err != nil {
		return fmt.Errorf("resize the terminal: %w", translate(err))
	}
	return nil
}

func (c *Client) Exit(ctx context.Context, id string) (int, error) {
	conn, cancel := c.with(ctx)
	defer cancel()
	code, err := containers.Wait(conn, id, nil)
	if err != nil {
		return 0, fmt.Errorf("wait for the container: %w", translate(err))
	}
	return int(code), nil
}

// removeTries: podman refuses to remove a container whose conmon died, once.
const removeTries = 3

func (c *Client) Remove(ctx context.Context, id string) error {
	var err error
	for range removeTries {
		if err = c.removeOnce(ctx, id); err == nil {
			err = c.pastaGone(id)
			break
		}
		if ctx.Err() != nil {
			break
		}
		// A service that was killed is no reason to leave anything behind.
		if rerr := c.reconnect(ctx); rerr != nil {
			return errors.Join(err, rerr)
		}
	}
	if err != nil {
		return fmt.Errorf("remove the container %s: %w", id, err)
	}
	return nil
}

func (c *Client) removeOnce(ctx context.Context, id string) error {
	conn, cancel := c.with(ctx)
	defer cancel()
	o := new(containers.RemoveOptions).WithForce(true).WithIgnore(true).WithVolumes(false).WithTimeout(0)
	reports, err := containers.Remove(conn, id, o)
	if err := translate(err); err != nil {
		if errors.Is(err, backend.ErrNotExist) {
			return nil
		}
		return err
	}
	for _, r := range reports {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

func (c *Client) RemoveVolume(ctx context.Context, name string) error {
	conn, cancel := c.with(ctx)
	defer cancel()
	err := volumes.Remove(conn, name, nil)
	if code, cerr := bindings.CheckResponseCode(err); err != nil && cerr == nil && code == http.StatusConflict {
		err = fmt.Errorf("%w: %w", backend.ErrInUse, err)
	} else {
		err = translate(err)
	}
	if err != nil && !errors.Is(err, backend.ErrNotExist) {
		return fmt.Errorf("remove the volume %s: %w", name, err)
	}
	return nil
}

// Homes implements backend.Backend.
func (c *Client) Homes(ctx context.Context) ([]backend.Home, error) {
	conn, cancel := c.with(ctx)
	defer cancel()
	var out []backend.Home
	for _, dangling := range []string{"true", "false"} {
		list, err := volumes.List(conn, new(volumes.ListOptions).WithFilters(map[string][]string{
			"label": {backend.LabelKind + "=home"}, "dangling": {dangling},
		}))
		if err != nil {
			return nil, fmt.Errorf("list the home volumes: %w", translate(err))
		}
		for _, v := range list {
			out = append(out, backend.Home{Name: v.Name, InUse: dangling == "false"})
		}
	}
	return out, nil
}

func (c *Client) List(ctx context.Context) ([]backend.Leftover, error) {
	conn, cancel := c.with(ctx)
	defer cancel()
	o := new(containers.ListOptions).WithAll(true).WithFilters(map[string][]string{"label": {backend.LabelKind}})
	list, err := containers.List(conn, o)
	if err != nil {
		return nil, fmt.Errorf("list the containers: %w", translate(err))
	}
	var out []backend.Leftover
	for _, l := range list {
		name := l.ID
		if len(l.Names) > 0 {
			name = l.Names[0]
		}
		out = append(out, backend.Leftover{
			ID: l.ID, Name: name,
			Session:  l.Labels[backend.LabelSession],
			GateName: l.Labels[backend.LabelGate],
			Running:  l.State == "running",
		})
	}
	return out, nil
}
