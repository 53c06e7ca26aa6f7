// The verb inspect.

package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/image"
	"ai-sandbox/policy"
)

var inspectVerb = &verb{
	name: "inspect", args: "[IMAGE|SESSION]",
	about: "Tell what is in an image, or what a session, also an ended one, stood on.",
	use:   config.UseBuild | config.UseInspect,
	flags: []ownFlag{
		{name: "pi", usage: "tell instead what of this machine's configuration of pi is another one in a sandbox"},
		{name: "json", usage: "write it as JSON"},
		{name: "offline", usage: "ask no registry"},
	},
	examples: []string{"ai-sandbox inspect", "ai-sandbox inspect --pi", "ai-sandbox inspect 0123456789ab", "ai-sandbox inspect --json localhost/ai-sandbox-gate:0123456789ab"},
	exit:     usualExit,
	action: func(a *app, inv Invocation, flagLayer []config.Item) error {
		if slices.Contains(inv.Own, "pi") {
			s, err := a.prepare(flagLayer, forLook) // no image has to do with it
			if err != nil {
				return err
			}
			return a.inspectPi(s)
		}
		s, err := a.prepare(flagLayer, forBuild)
		if err != nil {
			return err
		}
		what := ""
		if len(inv.Args) > 0 {
			what = inv.Args[0]
		}
		r := BuildRequest{Machine: s.Machine, Image: s.image}
		i, err := a.engine.Inspect(a.ctx, r, what, slices.Contains(inv.Own, "offline"))
		if err != nil {
			return err
		}
		if slices.Contains(inv.Own, "json") {
			return writeJSON(a.Out, i)
		}
		return writeInspection(a.Out, i, time.Now())
	},
}

// An Inspection is what the machine knows of what was asked for.
type Inspection struct {
	Version int `json:"version"` // 1
	// Session is set where a session was asked for.
	Session *session.Entry `json:"session,omitempty"`
	// EnforcedBy is what decided over the session's connections, with its version.
	EnforcedBy string           `json:"enforced_by,omitempty"`
	Images     []InspectedImage `json:"images"`
}

// An InspectedImage is one image.
type InspectedImage struct {
	Kind image.Kind `json:"kind,omitempty"`
	Ref  string     `json:"ref,omitempty"`
	ID   string     `json:"id,omitempty"`
	// Problem is why nothing, or not all, is known.
	Problem string            `json:"problem,omitempty"`
	Created time.Time         `json:"created,omitzero"`
	Size    int64             `json:"size_bytes,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Base    *InspectedBase    `json:"base,omitempty"`
	// Packages are all in it, from its manifest.
	Packages []image.Package `json:"packages,omitempty"`
}

// An InspectedBase is the base of an image, then and now.
type InspectedBase struct {
	Ref    string `json:"ref"`
	Digest string `json:"digest"` // or image.Unpinned
	// Pinned is when the registry last confirmed the pin that builds use now.
	Pinned time.Time `json:"pinned,omitzero"`
	// Today is what the registry says now, and Moved whether that is another one;
	// Problem is why it was not asked or did not answer.
	Today   string `json:"today,omitempty"`
	Moved   bool   `json:"moved"`
	Problem string `json:"problem,omitempty"`
}

func writeInspection(w io.Writer, in Inspection, now time.Time) error {
	var errs []error
	line := func(name, format string, args ...any) {
		_, err := fmt.Fprintf(w, "%-12s %s\n", name, policy.Printable(fmt.Sprintf(format, args...)))
		errs = append(errs, err)
	}
	if s := in.Session; s != nil {
		line("session", "%s, begun %s, %s, --net %s", s.Session, s.Started.Format(time.RFC3339), s.Runtime, s.Net)
		line("enforced by", "%s", in.EnforcedBy)
	}
	for n, i := range in.Images {
		if n > 0 || in.Session != nil {
			fmt.Fprintln(w)
		}
		line("image", "%s", i.Ref)
		if i.ID != "" {
			line("id", "%s", i.ID)
		}
		if i.Problem != "" {
			line("problem", "%s", i.Problem)
		}
		if !i.Created.IsZero() {
			line("age", "%s, made %s", days(now.Sub(i.Created)), i.Created.Format(time.RFC3339))
			line("size", "%d MB", i.Size/1e6)
		}
		if b := i.Base; b != nil {
			line("base", "%s", b.Ref)
			line("  digest", "%s", b.Digest)
			switch {
			case b.Problem != "":
				line("  today", "not known: %s", b.Problem)
			case b.Moved:
				line("  today", "%s: it has moved; ai-sandbox update takes it over", b.Today)
			case b.Digest == image.Unpinned:
				line("  today", "%s", b.Today)
			case b.Today != "":
				line("  today", "the same")
			}
			if !b.Pinned.IsZero() {
				line("  confirmed", "%s ago, %s", days(now.Sub(b.Pinned)), b.Pinned.Format(time.RFC3339))
			}
		}
		for _, k := range slices.Sorted(maps.Keys(i.Labels)) {
			line("label", "%s=%s", k, i.Labels[k])
		}
		for _, p := range i.Packages {
			line("package", "%s %s %s", p.Kind, p.Name, p.Version)
		}
	}
	return errors.Join(errs...)
}

// days is a time for people.
func days(d time.Duration) string {
	if n := int(d.Hours() / 24); n != 1 {
		return fmt.Sprintf("%d days", n)
	}
	return "1 day"
}
