// All images of ours: what is there, what uses it, and taking away what nothing uses.

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"ai-sandbox/cmd/ai-sandbox/internal/backend/podman"
	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/image"
	"ai-sandbox/policy"
)

func (e *engine) images(ctx context.Context, r cli.ImagesRequest) ([]cli.ListedImage, error) {
	_, _, list, err := listed(ctx, r)
	out := []cli.ListedImage{}
	for _, l := range list {
		out = append(out, l.ListedImage)
	}
	return out, err
}

// errImagesChange: what uses an image can't be told just now.
var errImagesChange = errors.New("no image is removed while another ai-sandbox brings those of a configuration up to date, as what it has just built looks unused: try again when it is through")

// cleanImages removes the images that nothing uses, or only tells which.
func (e *engine) cleanImages(ctx context.Context, r cli.ImagesRequest, dry bool, tell func(cli.Cleaned)) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var all []imagebuild.Request
	for _, one := range append([]cli.ImageRequest{r.Image}, r.Configured...) {
		req, err := request(one)
		if err != nil {
			return err
		}
		all = append(all, req)
	}
	release, ok, err := imagebuild.HoldBases(all)
	switch {
	case err != nil:
		return err
	case !ok:
		return errImagesChange
	}
	defer release()
	req, c, list, err := listed(ctx, r)
	if err != nil {
		return err
	}
	var errs []error
	var gone []string
	for _, l := range list {
		if !l.Unused() {
			continue
		}
		if !dry {
			// Podman refuses where a container has come meanwhile.
			if err := req.Remove(ctx, c, l.found); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		gone = append(gone, l.ID)
		tell(cli.Cleaned{What: fmt.Sprintf("%s %.12s", policy.Printable(l.Ref), l.ID), Why: "nothing uses this image", Goes: true})
	}
	// The base that a killed load has left below one of them.
	left, err := req.LeftOfLoad(gone)
	if left && !dry {
		err = req.RemoveLeftover(ctx, c, imagebuild.LoadName)
	}
	if left && err == nil {
		tell(cli.Cleaned{What: leftLoad, Why: leftWhy, Goes: true})
	}
	return errors.Join(append(errs, err)...)
}

// A listing is an image with what is known of it.
type listing struct {
	cli.ListedImage
	found imagebuild.Found
}

// listed finds all of them out.
func listed(ctx context.Context, r cli.ImagesRequest) (imagebuild.Request, *podman.Client, []listing, error) {
	fail := func(err error) (imagebuild.Request, *podman.Client, []listing, error) {
		return imagebuild.Request{}, nil, nil, err
	}
	if r.Runtime == policy.RuntimeLocal {
		return fail(errNoImages)
	}
	m, err := manager(r.Machine)
	if err != nil {
		return fail(err)
	}
	c, err := connect(ctx, r.Machine)
	if err != nil {
		return fail(err)
	}
	req, err := request(r.Image)
	if err != nil {
		return fail(err)
	}
	// The images first: what is built or started meanwhile is not in the list.
	found, err := c.ListImages(ctx)
	if err != nil {
		return fail(err)
	}
	used, err := uses(ctx, m, c, r.Configured, found)
	if err != nil {
		return fail(err)
	}
	var out []listing
	for _, f := range found {
		l := cli.ListedImage{
			Kind: image.Kind(f.Labels[image.LabelKind]), Ref: "none", ID: f.ID, Created: f.Created, Size: f.Size,
			BaseRef: f.Labels[image.LabelBaseRef], BaseDigest: f.Labels[image.LabelBaseDigest],
			Apt: strings.Fields(f.Labels[image.LabelApt]), Setup: f.Labels[image.LabelSetup],
			Here: req.Here(f), UsedBy: append([]string{}, used[f.ID]...),
		}
		if len(f.Names) > 0 {
			l.Ref = f.Names[0]
		}
		for _, name := range harness.Packaged() {
			if v := f.Labels[image.LabelHarness+name]; v != "" {
				l.Harnesses = append(l.Harnesses, policy.Harness{Name: name, Version: v})
			}
		}
		slices.Sort(l.UsedBy)
		l.UsedBy = slices.Compact(l.UsedBy)
		out = append(out, listing{l, f})
	}
	slices.SortFunc(out, func(a, b listing) int {
		return cmp.Or(strings.Compare(string(b.Kind), string(a.Kind)), b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID))
	})
	return req, c, out, nil
}

// uses says in words what uses an image, by ids.
func uses(ctx context.Context, m *session.Manager, c *podman.Client, configured []cli.ImageRequest, found []imagebuild.Found) (map[string][]string, error) {
	used := map[string][]string{}
	add := func(id, by string) {
		if id != "" {
			used[id] = append(used[id], by)
		}
	}
	for _, one := range configured {
		req, err := request(one)
		if err != nil {
			return nil, err
		}
		ids, err := req.Uses(found)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			add(id, "a configuration")
		}
	}
	if err := usedBySessions(m, found, add); err != nil {
		return nil, err
	}
	containers, err := c.ImageUsers(ctx)
	if err != nil {
		return nil, err
	}
	for id, names := range containers {
		for _, name := range names {
			add(id, "container "+name)
		}
	}
	return used, nil
}

// usedBySessions tells of what sessions and named gates stand on.
func usedBySessions(m *session.Manager, found []imagebuild.Found, add func(id, by string)) error {
	records, err := m.Store.List()
	if err != nil {
		return err
	}
	for _, rec := range records {
		// Where it can't be told whether it lives, it counts.
		if rec.Kind == "gate" {
			add(rec.GateImage, "gate "+rec.ID)
			continue
		}
		if m.Store.Liveness(rec) == store.Gone {
			continue
		}
		entry, ok, err := m.Journaled(rec.ID)
		switch {
		case err != nil:
			return err
		case ok:
			add(entry.SandboxImage, "session "+rec.ID)
			add(entry.GateImage, "session "+rec.ID)
		case rec.Runtime != policy.RuntimeLocal:
			// Its line was lost, or thousands of sessions have begun since.
			for _, f := range found {
				add(f.ID, "session "+rec.ID+", maybe")
			}
		}
	}
	return nil
}
