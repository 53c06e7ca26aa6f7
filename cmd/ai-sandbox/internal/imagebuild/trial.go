// The image that the doctor tries a sandbox on while no other is built. It is made in a
// moment, and gone again when the trial is over.

package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ai-sandbox/image"
)

// TrialName stands for a trial among the names of Leftovers.
const TrialName = "trial"

// Trial makes the image, and remove takes it away again. One process at a time has one;
// what one that was killed has left is removed first.
func (r Request) Trial(ctx context.Context, b Builder) (id string, remove func() error, err error) {
	fail := func(err error) (string, func() error, error) {
		return "", nil, fmt.Errorf("make an image to try: %w", err)
	}
	if err := os.MkdirAll(r.buildDir(), 0o700); err != nil {
		return fail(err)
	}
	unlock, err := lock(ctx, filepath.Join(r.buildDir(), TrialName+".lock"), func() {})
	if err != nil {
		return fail(err)
	}
	remove = func() error {
		defer unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		return r.removeBuild(ctx, b, TrialName)
	}
	todo := Build{Dir: filepath.Join(r.buildDir(), TrialName), Mark: r.mark(TrialName), Labels: image.TrialLabels(), Log: io.Discard, Step: func(Step) {}}
	if err = r.removeBuild(ctx, b, TrialName); err == nil {
		err = r.trialContext(todo.Dir)
	}
	if err == nil {
		id, err = b.BuildImage(ctx, todo)
	}
	if err != nil {
		return fail(errors.Join(err, remove()))
	}
	return id, remove, nil
}

// trialContext makes the build context.
func (r Request) trialContext(dir string) error {
	program, err := r.Entrypoint()
	if err != nil {
		return err
	}
	root := filepath.Join(dir, image.TrialRoot)
	for _, d := range image.TrialDirs() {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	if err := putFile(root, image.EntrypointPath, program, 0o755); err != nil {
		return err
	}
	return putFile(dir, "Containerfile", []byte(image.TrialContainerfile()), 0o644)
}
