// What the entrypoint makes in the home, as the sandbox's user, after the drop.

package spec

import (
	"fmt"
	"strings"
)

// A Link is made in the home. First, a symbolic link at Path is removed. Then,
// if To is set, whatever is at Path is renamed to Path+OwnSuffix and Path becomes
// a link to To; if it is not, and nothing is at Path, what was renamed comes back.
type Link struct {
	Path string `json:"path"`
	To   string `json:"to,omitempty"`
}

// OwnSuffix is on the sandbox's own file while a Link is in its place.
const OwnSuffix = ".own"

// A Seed is a file that is made, with what is above it, where nothing is.
type Seed struct {
	Path    string `json:"path"`
	Content []byte `json:"content"`
	Mode    uint32 `json:"mode"` // permission bits
}

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
	return errs
}
