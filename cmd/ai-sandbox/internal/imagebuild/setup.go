// What a setup script brings: whether it is the same today, which only running it tells.

package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"ai-sandbox/image"
)

// maxFiles is how many files a list of changes names.
const maxFiles = 20

// compareFiles lists the files of two images that differ.
func (r Request) compareFiles(ctx context.Context, b Builder, before, after Image, out *Outcome) error {
	var trees [2]image.Tree
	for i, img := range []Image{before, after} {
		var err error
		if trees[i], err = imageTree(ctx, b, img.ID); err != nil {
			return fmt.Errorf("compare the files of %s: %w", img.Ref, err)
		}
	}
	changes := image.DiffTrees(after.Kind, trees[0], trees[1])
	if more := len(changes) - maxFiles; more > 0 {
		out.note("%d more files differ", more)
		changes = changes[:maxFiles]
	}
	out.Changes = append(out.Changes, changes...)
	return nil
}

func imageTree(ctx context.Context, b Builder, id string) (image.Tree, error) {
	out, in := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := b.ImageFiles(ctx, id, in)
		in.CloseWithError(err)
		written <- err
	}()
	tree, err := image.ReadTree(out)
	if err == nil {
		_, err = io.Copy(io.Discard, out) // what comes behind a tar's end
	}
	out.CloseWithError(err)
	if writeErr := <-written; writeErr != nil {
		return nil, writeErr
	}
	return tree, err
}

// trySetup lists what the setup script brings today that is not in the image which is
// there: it is run anew, on what it was run on, in an image that nobody uses and that
// goes again.
func (r Request) trySetup(ctx context.Context, b Builder, o Options, in, next inputs, p Plan, out *Outcome) (err error) {
	if r.Setup == nil {
		return nil
	}
	// Nobody looks for what is unused until it is gone again.
	file := r.baseFile(in.base, ".lock")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("run the setup script to see what it brings: %w", err)
	}
	unlock, err := lock(ctx, file, func() {
		o.Say("waiting for another ai-sandbox that looks for a new %s and builds on it", in.base)
	})
	if err != nil {
		return fmt.Errorf("run the setup script to see what it brings: %w", err)
	}
	defer unlock()
	anew := in
	anew.again = time.Now().UTC().Format(image.PackagesForm)
	now, err := r.plan(anew)
	if err != nil {
		return err
	}
	o.unrun = true
	defer func() { err = errors.Join(err, r.drop(ctx, b, []inputs{anew}, p)) }()
	if err := r.ensure(ctx, b, o, &now.Sandbox); err != nil {
		return fmt.Errorf("run the setup script to see what it brings: %w", err)
	}
	changes, err := r.compareImage(ctx, b, p.Sandbox, now.Sandbox)
	if err != nil {
		return err
	}
	found := Outcome{Changes: changes}
	if len(changes) == 0 {
		if err := r.compareFiles(ctx, b, p.Sandbox, now.Sandbox, &found); err != nil {
			return err
		}
	}
	out.Changes = append(out.Changes, found.Changes...)
	out.Notes = append(out.Notes, found.Notes...)
	out.note("the setup script was run to see what it brings today; an update runs it once more")
	if len(r.recipeChanges(in, next)) > 0 {
		out.note("it was run on the base, node and agents that are there: what it brings on newer ones was not looked at")
	}
	return nil
}
