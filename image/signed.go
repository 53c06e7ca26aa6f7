// What the user's policy.json says against an image.

package image

import "fmt"

// A RefusedError says that the user's policy.json (containers-policy.json(5)) does not
// accept an image, or can't be obeyed.
type RefusedError struct {
	Ref string
	Why error
	// Fix is the next thing to do, or "" for the usual one.
	Fix string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("policy.json does not accept %s: %v", e.Ref, e.Why)
}

func (e *RefusedError) Unwrap() error { return e.Why }

// Hint is the next thing to do.
func (e *RefusedError) Hint() string {
	if e.Fix != "" {
		return e.Fix
	}
	return "name a base that has the signature which policy.json demands (base = ...), or change what it demands (containers-policy.json(5))"
}
