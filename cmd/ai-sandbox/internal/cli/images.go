// What the settings say about the images.

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/image"
	"ai-sandbox/policy"
)

// imageRequest is what the settings say, but for the CA and the setup script, whose
// files are not read.
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
	return r, errors.Join(placed(s, err), r.toolchain(s))
}

// toolchain takes the settings over that say what is in the image.
func (r *ImageRequest) toolchain(s config.Settings) error {
	var errs []error
	var err error
	if items := s["harness_packages"]; len(items) > 0 {
		if r.Harnesses, err = harness.ParseSet(items[0].Value); err != nil {
			errs = append(errs, &config.Error{Origin: items[0].Origin, Text: "harness_packages: " + err.Error(),
				Fix: "write one of " + strings.Join(harness.Packaged(), ", ") + ", or several with commas between them"})
		}
	}
	items := s["apt"]
	for _, it := range items {
		if _, err := image.Packages([]string{it.Value}); err != nil {
			errs = append(errs, &config.Error{Origin: it.Origin, Text: "apt: " + err.Error(), Fix: "write NAME, or NAME=VERSION"})
		}
	}
	if len(errs) == 0 {
		if r.Apt, err = image.Packages(s.Values("apt")); err != nil {
			errs = append(errs, &config.Error{Origin: items[len(items)-1].Origin, Text: "apt: " + err.Error(), Fix: "keep one of them"})
		}
	}
	return errors.Join(errs...)
}

// setupScript is the script that the settings name. What the project's file names was
// read with that, and trusted by its content; what somebody else names has been judged
// (see stayOutside).
func (a *app) setupScript(s config.Settings, facts host.Facts) (Setup, error) {
	items := s["setup"]
	if len(items) == 0 {
		return Setup{}, nil
	}
	it := items[0]
	bad := func(text, fix string) (Setup, error) {
		return Setup{}, &config.Error{Origin: it.Origin, Text: "setup " + quote(it.Value) + " " + text, Fix: fix}
	}
	if it.FromProject() {
		text, ok := a.inProject.Script(it.Value)
		if !ok {
			return bad("was not read with the file that names it", "start again")
		}
		return Setup{it.Value, []byte(text)}, nil
	}
	path := a.path(s, "setup", facts.Home)
	text, err := readSmall(path, image.MaxSetup)
	if err == nil {
		err = image.CheckSetup(text)
	}
	if err != nil {
		return bad(err.Error(), "name a script")
	}
	return Setup{it.Value, text}, nil
}

// readSmall reads a regular file of a person's. Its error says what the file does
// ("does not exist"), and nothing is read of one that is longer than most.
func readSmall(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0) // a FIFO would wait
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("does not exist")
	}
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("can't be read: %w", err)
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	return data, nil
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

// maxKeyring bounds a keyring, in bytes.
const maxKeyring = 8 << 20

// readKeyring reads the file that node_keyring names. What is in it is seen when it is
// used.
func readKeyring(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("node_keyring %s does not exist; name a file that gpg --export has written", quote(path))
	case err != nil:
		return nil, fmt.Errorf("read node_keyring: %w", err)
	case !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > maxKeyring:
		return nil, fmt.Errorf("node_keyring %s is not a file of at most 8 MiB with keys in it; name one that gpg --export has written", quote(path))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read node_keyring: %w", err)
	}
	return data, nil
}
