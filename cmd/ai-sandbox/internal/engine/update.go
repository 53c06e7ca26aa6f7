// The newest of everything that the images are made of.

package engine

import (
	"context"
	"os/signal"
	"syscall"

	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/policy"
)

func (e *engine) update(ctx context.Context, r cli.BuildRequest, check bool) (imagebuild.Outcome, error) {
	if r.Runtime == policy.RuntimeLocal {
		return imagebuild.Outcome{}, errNoImages
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	_, c, err := open(ctx, r.Machine)
	if err != nil {
		return imagebuild.Outcome{}, err
	}
	req, err := request(r.Image)
	if err != nil {
		return imagebuild.Outcome{}, err
	}
	show := newProgress(r.Machine)
	defer show.close()
	if check {
		return req.Check(ctx, c, show.options(r.Environ))
	}
	return req.Update(ctx, c, show.options(r.Environ))
}
