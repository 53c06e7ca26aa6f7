// What the entrypoint makes in the home, as the sandbox's user, after the drop.

package spec

import (
	"fmt"
	"strings"
)

// A Link is made in the home. First, a symbolic link at Path is removed. Then,
// if To is set, whatever is at Path is renamed to Path+OwnSuffix and Path becomes
// a link to To; if it is not, and nothing is at Path, what was renamed comes back.
// What an earlier start linked, and none of this one's Links names, comes back too.
type Link struct {
	Path string `json:"path"`
	To   string `json:"to,omitempty"`
}

// LinkTarget is what each To begins with.
const LinkTarget = "/run/aisb-"

// LinksRecord is the file, right in the home, with the paths of the Links that a start
// made: a JSON list, relative to the home.
const LinksRecord = ".aisb-links"

// OwnSuffix is on the sandbox's own file while a Link is in its place.
const OwnSuffix = ".own"

// A Seed is a file that is made, with what is above it, where nothing is.
type Seed struct {
	Path    string `json:"path"`
	Content []byte `json:"content"`
	Mode    uint32 `json:"mode"` // permission bits
}

// A Managed is a file of the host's that is brought into the home at each start, as
// entrypoint/managed says: whole, or by the keys of a JSON object. Its base lies
// beside it, as WrotePrefix, its name and WroteSuffix. No link is followed from Home
// on; one in its place makes way.
type Managed struct {
	// Path is relative to Home.
	Path string `json:"path"`
	Home string `json:"home"`
	// Content is the host's; None says that it has no such file.
	Content []byte `json:"content,omitempty"`
	None    bool   `json:"none,omitempty"`
	Mode    uint32 `json:"mode"` // permission bits
	Keys    bool   `json:"keys,omitempty"`
	// Fixed are what keys are after every start, whatever either side says.
	Fixed []Key `json:"fixed,omitempty"`
}

// A Key has a string as its value; without Value there is no such key.
type Key struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// What a base's name has around the file's.
const (
	WrotePrefix = ".aisb-"
	WroteSuffix = ".wrote"
)

// MaxManaged bounds a Managed and what is found in its place, in bytes.
const MaxManaged = 1 << 20

// A HomeNote tells what became of a file, or a link, where that is not what the host
// has.
type HomeNote struct {
	Path  string `json:"path"` // below the home, or "."
	State string `json:"state"`
	// Reason is the kernel's, where there is one.
	Reason string `json:"reason,omitempty"`
	// Mend tells what helps at Path, or is "".
	Mend string `json:"mend,omitempty"`
}

// The values of HomeNote.State.
const (
	// NoteKept: it was changed inside, and stays so.
	NoteKept = "kept"
	// NoteReseeded: what was there could not be parsed, and is the host's again.
	NoteReseeded = "reseeded"
	// NoteUnread: what is there can't be read or replaced, and stays as it is.
	NoteUnread = "unread"
)

// The values of HomeNote.Mend.
const (
	// MendRemove: it has to go.
	MendRemove = "remove"
	// MendTree: it has to go, and is a directory, whatever its permissions are.
	MendTree = "tree"
	// MendOpen: it is a directory whose permissions keep its owner out.
	MendOpen = "open"
	// MendMount: it is what the user mounts, and only without that mount is anything
	// brought in.
	MendMount = "mount"
)

func checkHome(s Spec) (errs []error) {
	for _, l := range s.Links {
		for _, p := range []string{l.Path, l.To} {
			if p == "" && l.Path != "" {
				continue
			}
			if err := checkPath(p); err != nil {
				errs = append(errs, fmt.Errorf("link: %w", err))
			}
		}
		if l.To != "" && !strings.HasPrefix(l.To, LinkTarget) {
			errs = append(errs, fmt.Errorf("link: %q leads to %q, where nothing of ours is", l.Path, l.To))
		}
		if strings.HasSuffix(l.Path, OwnSuffix) {
			errs = append(errs, fmt.Errorf("link: %q ends as what a link displaces", l.Path))
		}
	}
	for _, f := range s.Seeds {
		if err := checkPath(f.Path); err != nil {
			errs = append(errs, fmt.Errorf("seed: %w", err))
		}
		if f.Mode&^0o777 != 0 {
			errs = append(errs, fmt.Errorf("seed: mode %o of %q has more than permissions", f.Mode, f.Path))
		}
	}
	for _, m := range s.Managed {
		errs = append(errs, checkManaged(m)...)
	}
	return errs
}

func checkManaged(m Managed) (errs []error) {
	for _, p := range []string{m.Home, m.Home + "/" + m.Path} {
		if err := checkPath(p); err != nil {
			errs = append(errs, fmt.Errorf("managed: %w", err))
		}
	}
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("managed: "+format, a...)) }
	if m.Mode&^0o777 != 0 {
		bad("mode %o of %q has more than permissions", m.Mode, m.Path)
	}
	if len(m.Content) > MaxManaged || m.None && len(m.Content) > 0 {
		bad("%q has %d bytes, with none %t", m.Path, len(m.Content), m.None)
	}
	if len(m.Fixed) > 0 && !m.Keys {
		bad("%q has fixed keys and is not merged by keys", m.Path)
	}
	return errs
}
