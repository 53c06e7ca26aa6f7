// The undo stack: every step that a start takes says at once how it is undone.

package session

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// undoTime bounds all of the undoing; it runs on a context of its own, since
// the start's may be cancelled. Podman may be in the middle of a large image's layer,
// or have the ends of many sessions before it.
const undoTime = time.Minute

type undo struct {
	steps []undoStep
	// last runs when every step has succeeded, and not otherwise: it takes
	// away what a later command would find the rest by.
	last undoStep
}

type undoStep struct {
	what string
	do   func(context.Context) error
}

func (u *undo) push(what string, do func(context.Context) error) {
	u.steps = append(u.steps, undoStep{what, do})
}

// run undoes everything in reverse order; one failure does not end the others.
func (u *undo) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), undoTime)
	defer cancel()
	var errs []error
	for i := len(u.steps) - 1; i >= 0; i-- {
		if err := u.steps[i].do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", u.steps[i].what, err))
		}
	}
	u.steps = nil
	if len(errs) == 0 && u.last.do != nil {
		if err := u.last.do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", u.last.what, err))
		}
	}
	return errors.Join(errs...)
}
