// Package embedded holds the entrypoint that goes into the images, so that one
// file is the whole install. `make build` writes it before the compiler runs;
// a program built without make compiles all the same, and says so when the
// entrypoint is asked for. Pure.
package embedded

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
)

// The folder is never empty: its README is in the repository.
//
//go:embed file
var files embed.FS

// ErrNoEntrypoint is what a program built without make has instead.
var ErrNoEntrypoint = errors.New("this ai-sandbox was built without its entrypoint: use make build")

// Entrypoint is the program aisb-entrypoint for this machine's architecture.
func Entrypoint() ([]byte, error) { return find(files, runtime.GOARCH) }

// SHA256 is its checksum in lower-case hex, written down by `make build`. It is
// what a warm start needs of the program, which is large.
func SHA256() (string, error) {
	sum, err := find(files, runtime.GOARCH+".sha256")
	return strings.TrimSpace(string(sum)), err
}

func find(in fs.FS, arch string) ([]byte, error) {
	name := "file/aisb-entrypoint-linux-" + arch
	program, err := fs.ReadFile(in, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoEntrypoint
	}
	if err != nil {
		return nil, fmt.Errorf("read the embedded entrypoint: %w", err)
	}
	if len(program) == 0 {
		return nil, fmt.Errorf("%s is empty: %w", name, ErrNoEntrypoint)
	}
	return program, nil
}
