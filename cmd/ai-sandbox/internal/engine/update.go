// The newest of everything that the images are made of.

package engine

import (
	"context"

	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/policy"
)

func (e *engine) update(ctx context.Context, r cli.BuildRequest, check bool) (imagebuild.Outcome, error) {
	if r.Runtime == policy.RuntimeLocal {
		return imagebuild.Outcome{}, errNoImages
	}
	var out imagebuild.Outcome
	err := interruptible(ctx, func(ctx context.Context) error {
		_, c, err := open(ctx, r.Machine)
		if err != nil {
			return err
		}
		req, err := request(r.Image)
		if err != nil {
			return err
		}
		show := newProgress(r.Machine, r.Verbose)
		defer show.close()
		do := req.Update
		if check {
			do = req.Check
		}
		out, err = do(ctx, c, show.options(r.Environ))
		return err
	})
	return out, err
}
