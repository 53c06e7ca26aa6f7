// The verb images, and which images the configurations use.

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/trust"
	"ai-sandbox/image"
	"ai-sandbox/policy"
)

var imagesVerb = &verb{
	name:     "images",
	about:    "List the images that are there, with their age and size, and what uses them.",
	use:      config.UseDoctor,
	flags:    []ownFlag{{name: "json", usage: "write it as JSON"}},
	examples: []string{"ai-sandbox images", "ai-sandbox images --json"},
	exit:     usualExit,
	action: func(a *app, inv Invocation, flagLayer []config.Item) error {
		r, err := a.imagesRequest(flagLayer)
		if err != nil {
			return err
		}
		list, err := a.engine.Images(a.ctx, r)
		if err != nil {
			return err
		}
		if slices.Contains(inv.Own, "json") {
			return writeJSON(a.Out, ImageList{Version: 1, Images: list})
		}
		return writeImages(a.Out, list, time.Now())
	},
}

// An ImagesRequest is about all images. Configured is what each configuration says
// of them; of each, only the directories and what the recipes are made of count.
type ImagesRequest struct {
	Machine
	Image      ImageRequest
	Configured []ImageRequest
}

// An ImageList is what images --json writes.
type ImageList struct {
	Version int           `json:"version"` // 1
	Images  []ListedImage `json:"images"`  // never nil
}

// A ListedImage is an image of ours.
type ListedImage struct {
	Kind    image.Kind `json:"kind"`
	Ref     string     `json:"ref"` // "none" where it has no name any more
	ID      string     `json:"id"`
	Created time.Time  `json:"created"`
	// Size is in bytes, and counts what it shares with others.
	Size       int64  `json:"size_bytes"`
	BaseRef    string `json:"base_ref"`
	BaseDigest string `json:"base_digest"` // or image.Unpinned
	// Harnesses, Apt and Setup (a digest) are what is in a sandbox's.
	Harnesses []policy.Harness `json:"harness_packages,omitempty"`
	Apt       []string         `json:"apt,omitempty"`
	Setup     string           `json:"setup,omitempty"`
	// Here: it was built for this user and state. Others stay as they are.
	Here bool `json:"here"`
	// UsedBy is what keeps it, in words; empty where clean --images removes it.
	UsedBy []string `json:"used_by"` // never nil
}

// Unused tells whether clean --images removes it.
func (i ListedImage) Unused() bool { return i.Here && len(i.UsedBy) == 0 }

// imagesRequest finds out what is configured: by the user's file, with each profile,
// and by each project's file that he has trusted, as it was then, over that.
func (a *app) imagesRequest(flagLayer []config.Item) (ImagesRequest, error) {
	s, err := a.prepare(flagLayer, forVerb)
	if err != nil {
		return ImagesRequest{}, err
	}
	projects, err := trust.In(s.Facts.Dirs.State).All()
	if err != nil {
		return ImagesRequest{}, err
	}
	base, err := a.own(flagLayer)
	if err != nil {
		return ImagesRequest{}, err
	}
	out := ImagesRequest{Machine: s.Machine, Image: s.image}
	for _, p := range append([]trust.Project{{}}, projects...) {
		if p.Path != "" && fileGone(p.Path) {
			continue
		}
		l := base
		l.Project = p.File
		list, err := a.configured(s, l)
		if err != nil {
			where := "your configuration"
			if p.Path != "" {
				where = "the configuration that is trusted in " + quote(p.Path)
			}
			return ImagesRequest{}, fmt.Errorf("tell which images %s uses: %w", where, err)
		}
		out.Configured = append(out.Configured, list...)
	}
	return out, nil
}

// fileGone tells whether a project has no file any more, so that it configures nothing.
// Where the project itself is not there, its disk may be away.
func fileGone(project string) bool {
	if info, err := os.Stat(project); err != nil || !info.IsDir() {
		return false
	}
	_, err := os.Lstat(filepath.Join(project, config.ProjectFile))
	return errors.Is(err, fs.ErrNotExist)
}

// configured is what layers say of the images, with the profile of theirs and with each
// other one, in this environment and without: what a variable replaces now is used by
// the next run that does not have it.
func (a *app) configured(s setup, l config.Layers) ([]ImageRequest, error) {
	was := a.inProject
	defer func() { a.inProject = was }()
	a.inProject = l.Project
	isProfile := func(it config.Item) bool { return it.Key == "profile" }
	flags := slices.DeleteFunc(slices.Clone(l.Flags), isProfile)
	bare := l
	bare.Env = nil
	ways := []config.Layers{l}
	if len(l.Env) > 0 {
		ways = append(ways, bare)
	}
	var out []ImageRequest
	for _, with := range ways {
		for _, name := range append([]string{""}, l.ProfileNames()...) {
			with.Flags = flags
			if name != "" {
				with.Flags = append(slices.Clone(flags), config.Item{Key: "profile", Value: name, Origin: "--profile"})
			}
			settings, err := with.Settle()
			if err != nil {
				return nil, err
			}
			if settings.Text("runtime") == policy.RuntimeLocal {
				continue // it has no images
			}
			one, err := a.setup(s.Facts, settings)
			if err != nil {
				return nil, err
			}
			out = append(out, one.image)
		}
	}
	return out, nil
}

func writeImages(w io.Writer, list []ListedImage, now time.Time) error {
	var errs []error
	line := func(format string, args ...any) {
		_, err := fmt.Fprintln(w, strings.TrimRight(policy.Printable(fmt.Sprintf(format, args...)), " "))
		errs = append(errs, err)
	}
	for _, i := range list {
		line("%-38s %12s %9s %8d MB  %s", i.Ref, i.ID[:min(12, len(i.ID))], days(now.Sub(i.Created)), i.Size/1e6, i.holds())
		switch {
		case len(i.UsedBy) > 0:
			line("    used by %s", strings.Join(i.UsedBy, ", "))
		case i.Here:
			line("    not used; ai-sandbox clean --images removes it")
		default:
			line("    built for another user or state directory, so it stays")
		}
	}
	return errors.Join(errs...)
}

// holds says in words what is in it.
func (i ListedImage) holds() string {
	if i.Kind == image.KindGate {
		return "gate"
	}
	var out []string
	for _, h := range i.Harnesses {
		out = append(out, h.Name+" "+h.Version)
	}
	if len(i.Apt) > 0 {
		out = append(out, "apt "+strings.Join(i.Apt, " "))
	}
	if i.Setup != "" {
		out = append(out, fmt.Sprintf("setup %.19s", i.Setup))
	}
	return strings.Join(out, ", ")
}
