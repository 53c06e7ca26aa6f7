// Pins where the user's policy.json demands signatures: none is stood on that was not
// checked under the rules and keys of today.

package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

// demand finds out what policy.json demands of the base. Not to know that is no reason
// not to print a plan, but one not to stand on it.
func (r Request) demand(in *inputs) {
	if r.Demands != nil {
		in.demands, in.demandsErr = r.Demands(in.base)
	}
}

// unchecked tells whether policy.json has to be obeyed before the pin is stood on.
func (in inputs) unchecked() bool {
	return in.demandsErr != nil || in.demands != in.pin.Checked && in.demands != ""
}

// fixedPin is the pin of a base whose digest the user names: only what was demanded of
// it is recorded.
func (r Request) fixedPin(in inputs) (baseRecord, error) {
	pin := baseRecord{Ref: in.base.String(), Digest: in.base.Digest}
	if in.demands == "" {
		return pin, nil
	}
	rec, err := r.recordedBase(in.base)
	if err == nil && rec.Digest == pin.Digest {
		pin.Checked = rec.Checked
	}
	return pin, err
}

// check has the signature of the pin checked that was not. It records nothing. A pin
// that can't be checked is not stood on, however long it has been there.
func (r Request) check(ctx context.Context, b Builder, o Options, in inputs) (inputs, error) {
	switch {
	case in.demandsErr != nil:
		return in, in.demandsErr
	case !in.unchecked(), in.pin.Digest == "":
		return in, nil
	}
	at := in.base
	at.Digest = in.pin.Digest
	err := r.accepted(ctx, b, o, in.base, at)
	var refused *image.RefusedError
	switch {
	case ctx.Err() != nil:
		return in, context.Cause(ctx)
	case errors.As(err, &refused) && in.base.Digest == "":
		return in, &stalePinError{refused}
	case errors.As(err, &refused):
		return in, refused
	case err != nil:
		return in, unchecked(at, err)
	}
	in.pin.Checked = in.demands
	return in, nil
}

// accepted asks whether policy.json accepts a base at its pin. Of what a tag was pinned to
// podman is not asked instead: it judges what it pulls by the digest alone, and so accepts
// a signature that was made for another tag.
func (r Request) accepted(ctx context.Context, b Builder, o Options, base, at image.Reference) error {
	switch {
	case base.Digest == "" && o.Accept == nil:
		return errors.New("no registry is asked")
	case base.Digest == "":
		return o.Accept(ctx, base, at.Digest)
	}
	d, err := r.resolve(ctx, b, o, at, false)
	if err == nil && d != at.Digest {
		err = fmt.Errorf("the answer is about %s", d)
	}
	return err
}

// A stalePinError is a refusal of what an earlier build was pinned to.
type stalePinError struct{ refused *image.RefusedError }

func (e *stalePinError) Error() string { return e.refused.Error() }
func (e *stalePinError) Unwrap() error { return e.refused }

// Hint is the next thing to do.
func (e *stalePinError) Hint() string {
	return "ai-sandbox update takes over what the tag leads to today, if that has the signature; or " + e.refused.Hint()
}

// unchecked is the refusal of a base of which nobody could say whether it has the
// signature that is demanded.
func unchecked(ref image.Reference, why error) error {
	return &image.RefusedError{Ref: ref.String(), Why: fmt.Errorf("a signature is demanded, and none could be checked: %w", why),
		Fix: "try again where the base's registry answers: it is asked once for each base and key"}
}

// newPin is what a registry has just said, and what was demanded of it then.
func (in inputs) newPin(d digest.Digest, now time.Time) baseRecord {
	return baseRecord{Ref: in.base.String(), Digest: d, Resolved: now.UTC().Truncate(time.Second), Checked: in.demands}
}

// Signature tells whether policy.json demands a signature of the base, and whether that
// of its pin was checked under the rules of today.
func (r Request) Signature() (demanded, checked bool, err error) {
	in, err := r.inputs()
	if err == nil {
		err = in.demandsErr
	}
	return in.demands != "", in.pin.Digest != "" && !in.unchecked(), err
}
