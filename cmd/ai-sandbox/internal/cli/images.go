// What the settings say about the images.

package cli

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/image"
	"ai-sandbox/policy"
)

// imageRequest is what the settings say, but for the CA, whose file is not read.
func imageRequest(s config.Settings, facts host.Facts) (ImageRequest, error) {
	r := ImageRequest{
		Base: s.Text("base"), NodeVersion: s.Text("node_version"), NodeMirror: s.Text("node_mirror"),
		CacheDir: facts.Dirs.Cache, StateDir: facts.Dirs.State,
	}
	err := r.freshness(s)
	if s.Text("runtime") != policy.RuntimeLocal { // which has no image, and says so
		_, err1 := image.ParseReference(r.Base)
		_, err2 := image.NewNode(r.NodeVersion, runtime.GOARCH)
		err = errors.Join(err, policy.About(err1, "base"), policy.About(err2, "node_version"))
	}
	return r, placed(s, err)
}

// maxTTL is the oldest that a pin may be allowed to get, in days.
const maxTTL = 3650

// freshness takes the settings over that say when a pin is replaced.
func (r *ImageRequest) freshness(s config.Settings) error {
	items := s["base_ttl_days"]
	if len(items) == 0 {
		return errors.New("base_ttl_days has no value")
	}
	days, err := strconv.Atoi(items[0].Value)
	if err != nil || days < -1 || days > maxTTL {
		return &config.Error{Origin: items[0].Origin, Text: fmt.Sprintf("base_ttl_days is %q", items[0].Value),
			Fix: fmt.Sprintf("write a number of days up to %d, 0 for every build or -1 for never", maxTTL)}
	}
	r.BaseTTL = days
	r.KeepBase = !s.Bool("base_auto_update")
	r.NoPull = !s.Bool("base_pull_fallback")
	return nil
}
