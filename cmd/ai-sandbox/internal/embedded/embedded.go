// Package embedded holds the entrypoint that goes into the images, so that one
// file is the whole install. `make build` writes it before the compiler runs;
// a program built without make compiles all the same, and says so when the
// entrypoint is asked for. Pure.
package embedded

import (
	"embed"
	"errors"
	"fmt"
	"io"
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

// Open is Entrypoint without a copy of it in memory.
func Open() (*io.SectionReader, error) {
	f, err := files.Open(name(runtime.GOARCH))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoEntrypoint
	}
	if err != nil {
		return nil, fmt.Errorf("read the embedded entrypoint: %w", err)
	}
	info, err := f.Stat()
	at, ok := f.(io.ReaderAt) // as embed.FS documents
	if err != nil || !ok || info.Size() == 0 {
		return nil, fmt.Errorf("%s can't be read: %w", name(runtime.GOARCH), errors.Join(ErrNoEntrypoint, err))
	}
	return io.NewSectionReader(at, 0, info.Size()), nil
}

func name(arch string) string { return "file/aisb-entrypoint-linux-" + arch }

// SHA256 is its checksum in lower-case hex, written down by `make build`. It is
// what a warm start needs of the program, which is large.
func SHA256() (string, error) {
	sum, err := find(files, runtime.GOARCH+".sha256")
	return strings.TrimSpace(string(sum)), err
}

func find(in fs.FS, arch string) ([]byte, error) {
	program, err := fs.ReadFile(in, name(arch))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoEntrypoint
	}
	if err != nil {
		return nil, fmt.Errorf("read the embedded entrypoint: %w", err)
	}
	if len(program) == 0 {
		return nil, fmt.Errorf("%s is empty: %w", name(arch), ErrNoEntrypoint)
	}
	return program, nil
}
