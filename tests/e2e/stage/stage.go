// Package stage sets up what the end-to-end tests and the benchmark stand on in a
// run of tests/host, on the machine itself or in the test host: its services, the
// far side (tests/e2e/internet), directories of their own, and the images.
package stage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"ai-sandbox/tests/e2e/internet"
)

// A Stage is such a run, set up.
type Stage struct {
	Bin   string // the directory of the programs under test
	Home  string
	Own   string // below Home, for everything of the tests
	CAPEM string
	Net   *internet.Internet
	Env   []string // of every ai-sandbox
	NPM   string   // the registry's address, asked of npm
}

// Set sets it up. bin holds ai-sandbox.
func Set(bin string) (*Stage, error) {
	if os.Getuid() == 0 {
		return nil, errors.New("podman's runtime can't run as root: start this by tests/e2e/run or tests/bench/run")
	}
	for _, name := range []string{"podman", "pasta", "nft", "nsenter", "git", "npm", "curl"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, fmt.Errorf("a program is missing: %w", err)
		}
	}
	facts, err := os.ReadFile("/run/aisb-test/paths")
	if err != nil {
		return nil, fmt.Errorf("this is not a run of tests/host: %w", err)
	}
	fact := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindSubmatch(facts)
		if m == nil {
			return ""
		}
		return string(m[1])
	}
	upstream, err := os.ReadFile("/run/aisb-test/upstream-dns")
	if err != nil {
		return nil, fmt.Errorf("read the run's name server: %w", err)
	}
	s := &Stage{Bin: bin, Home: os.Getenv("HOME")}
	s.Own = filepath.Join(s.Home, "e2e")
	if err := os.RemoveAll(filepath.Join(s.Own, "projects")); err != nil {
		return nil, fmt.Errorf("empty the stage: %w", err)
	}
	for _, dir := range []string{"projects", "files"} {
		if err := os.MkdirAll(filepath.Join(s.Own, dir), 0o700); err != nil {
			return nil, fmt.Errorf("set the stage: %w", err)
		}
	}
	if out, err := exec.Command("/src/tests/host/services").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("start the run's services: %w: %s", err, out)
	}
	if s.Net, err = internet.Start(internet.Options{
		CADir: filepath.Join(s.Own, "ca"), Upstream: strings.TrimSpace(string(upstream)), Files: filepath.Join(s.Own, "files"),
	}); err != nil {
		return nil, err
	}
	s.CAPEM = filepath.Join(s.Own, "ca.pem")
	if err := s.Net.WriteCA(s.CAPEM, fact("CA_FILE")); err != nil {
		return nil, errors.Join(err, s.Net.Close())
	}
	s.Env = []string{
		"HOME=" + s.Home, "PATH=" + os.Getenv("PATH"), "TERM=xterm", "LANG=C.UTF-8", "SHELL=/bin/bash",
		"USER=" + os.Getenv("USER"), "LOGNAME=" + os.Getenv("LOGNAME"),
		"XDG_RUNTIME_DIR=" + os.Getenv("XDG_RUNTIME_DIR"),
		"XDG_STATE_HOME=" + filepath.Join(s.Own, "state"), "XDG_CACHE_HOME=" + filepath.Join(s.Own, "cache"), "XDG_CONFIG_HOME=" + filepath.Join(s.Own, "config"),
		"AISB_BASE=" + fact("BASE_REF"), "AISB_NODE_MIRROR=" + fact("NODE_MIRROR"), "AISB_NODE_VERSION=" + fact("NODE_VERSION"),
		"AISB_CA_FILE=" + s.CAPEM,
	}
	out, err := exec.Command("npm", "config", "get", "registry").Output()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask npm for its registry: %w", err), s.Net.Close())
	}
	s.NPM = strings.TrimSpace(string(out))
	return s, nil
}

// Build makes the images, once for all, and takes away the volumes of earlier runs: each
// holds one of podman's 2048 locks (num_locks in containers.conf(5)).
func (s *Stage) Build() error {
	prune := exec.Command("podman", "volume", "prune", "--force")
	prune.Env = s.Env
	if out, err := prune.CombinedOutput(); err != nil {
		return fmt.Errorf("remove the volumes of earlier runs: %w: %s", err, out)
	}
	build := exec.Command(filepath.Join(s.Bin, "ai-sandbox"), "build")
	build.Env, build.Dir = s.Env, s.Own
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("ai-sandbox build: %w", err)
	}
	return nil
}

// Close ends the far side, and removes the tests' projects.
func (s *Stage) Close() error {
	return errors.Join(s.Net.Close(), os.RemoveAll(filepath.Join(s.Own, "projects")))
}
