// The verb image: the images in a file.

package cli

import (
	"path/filepath"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
)

var imageVerb = &verb{
	name:     "image",
	about:    "Carry the images in a file to machines that have no registry.",
	examples: []string{"ai-sandbox image save images.tar", "ai-sandbox image load images.tar"},
	subs: []*verb{
		{
			name: "save", args: "FILE", about: "Write base, gate and sandbox image with their pins into FILE.",
			use:      config.UseBuild,
			examples: []string{"ai-sandbox image save images.tar"},
			exit:     usualExit,
			action: func(a *app, inv Invocation, flagLayer []config.Item) error {
				return a.image(inv, flagLayer, a.engine.ImageSave)
			},
		},
		{
			name: "load", args: "FILE", about: "Check all that is in FILE, and take its images and pins.",
			use:      config.UseBuild,
			examples: []string{"ai-sandbox image load images.tar"},
			exit:     usualExit,
			action: func(a *app, inv Invocation, flagLayer []config.Item) error {
				return a.image(inv, flagLayer, a.engine.ImageLoad)
			},
		},
	},
}

// image does something with the file that was named.
func (a *app) image(inv Invocation, flagLayer []config.Item, do imageFunc) error {
	s, err := a.prepare(flagLayer, forBuild)
	if err != nil {
		return err
	}
	path, err := filepath.Abs(inv.Args[0])
	if err != nil {
		return err
	}
	return do(a.ctx, BuildRequest{Machine: s.Machine, Image: s.image}, path)
}
