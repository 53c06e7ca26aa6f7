// A payload for LD_PRELOAD that tells which programs load it.

package canary

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"fmt"
	"io"
)

// preload is a shared object for amd64 (ld -shared, 1472 bytes, compressed) whose
// DT_INIT appends /proc/self/status to the file that is named at marker: open
// and read, then open with O_WRONLY|O_CREAT|O_APPEND and write.
const (
	preload = `
eNqrd/VxY2JkZIABZgY7BgSPgcEBSh9gRhazYGABkhwM7GC1rAy4wQEmVJpBAEKB9LEhywuh0QyoNEwfE4n6OKB04N
OSFDYG4gHUOrA7maA0MYARrJeFIQ9dQ2ZeZglDsGOIR+MbkOE7QIZ69NqGAynDb4aX+Fk7jxse8Oh8tgsky8/q2Xlk
ByjI+VlhKu2B1D5HFgaGXdsYQeKdx3eA7ABq8el8BFQGUe3ReARkgGNM9GH9gqL8ZP3i1Jw0/eKSxJLSYgZfxyBv1y
CG4QR4oDQsvFmgfAUoH5Y2M6B8WBqwgPK5GFDFuaG0BL08oFecUVxSVJKYxKCXkVicwaCXUplXXJkLoUuKGPRKUitK
GPRSM+LTihJzU8HiibmZyVSynhsaRkxo4QajRRgQ+Q45P8HCWRBqBhNauMJoA3i5AskbHGjhKwmVY0KLJ/T4Qs5fyE
ARqSxBTgcw2pcRv351pDyOtbxCAxxofEOo3bDiEV4OMaGWQ8xo+pHLF2Ys9jRABa0I+B8Ai+RT+A==`
	marker    = "MARKER"
	maxMarker = 200
)

// Preload is a shared object for LD_PRELOAD: every program that loads it appends
// its /proc/self/status to the file path.
func Preload(path string) ([]byte, error) {
	packed, err := base64.StdEncoding.DecodeString(string(bytes.ReplaceAll([]byte(preload), []byte("\n"), nil)))
	if err != nil {
		return nil, fmt.Errorf("unpack the shared object: %w", err)
	}
	z, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpack the shared object: %w", err)
	}
	so, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("unpack the shared object: %w", err)
	}
	at := bytes.Index(so, []byte(marker))
	if at < 0 || len(path) > maxMarker {
		return nil, fmt.Errorf("the path %s does not fit", path)
	}
	copy(so[at:], path+"\x00")
	return so, nil
}
