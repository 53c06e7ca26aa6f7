// Bodies of requests and answers.

package builtin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	// maxChunkLine bounds the line before a chunk, with its extensions, and
	// maxTrailer the lines after the last, in bytes.
	maxChunkLine = 4 << 10
	maxTrailer   = 16 << 10
)

// A chunkedReader reads a chunked body to its end (RFC 9112, section 7.1), and
// not a byte more. Extensions and trailers are dropped. What it could read in two
// ways is a badRequest.
type chunkedReader struct {
	r    *bufio.Reader
	left int64 // of the chunk
	open bool  // a chunk has begun
	err  error
}

func (c *chunkedReader) Read(b []byte) (int, error) {
	for c.err == nil && c.left == 0 {
		c.err = c.next()
	}
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	c.err = err
	return n, err
}

// next reads to the beginning of the next chunk. It returns io.EOF after the last.
func (c *chunkedReader) next() error {
	if c.open {
		if l, err := c.line(2); err != nil || l != "" {
			return cmpBad(err, "a chunk is longer than it says")
		}
	}
	l, err := c.line(maxChunkLine)
	if err != nil {
		return err
	}
	size, _, _ := strings.Cut(l, ";")
	n, err := strconv.ParseUint(size, 16, 60)
	if err != nil || strings.Trim(strings.ToLower(size), "0123456789abcdef") != "" {
		return badRequest("a chunk's size is no number")
	}
	c.left, c.open = int64(n), true
	if n > 0 {
		return nil
	}
	for total := 0; ; {
		l, err := c.line(maxTrailer - total)
		if err != nil {
			return err
		}
		if l == "" {
			return io.EOF
		}
		total += len(l) + 2
	}
}

// line reads one of at most so many bytes, without its end.
func (c *chunkedReader) line(most int) (string, error) {
	var b []byte
	for {
		part, err := c.r.ReadSlice('\n')
		b = append(b, part...)
		switch {
		case len(b) > most:
			return "", badRequest("a line of its chunks is too long")
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return "", io.ErrUnexpectedEOF
		case err != nil:
			return "", err
		}
		l, ok := bytes.CutSuffix(b, []byte("\r\n"))
		if !ok || bytes.ContainsAny(l, "\r\x00") {
			return "", badRequest("a line of its chunks ends without a carriage return")
		}
		return string(l), nil
	}
}

func cmpBad(err error, text string) error {
	if err != nil {
		return err
	}
	return badRequest(text)
}

// copyBody moves a body, each part as it comes; in chunks if so asked, with the
// last one only where src ended in order. It returns how many bytes the body had.
func copyBody(dst io.Writer, src io.Reader, inChunks bool, moved func(int)) (n int64, rerr, werr error) {
	buf := chunks.Get().(*chunk)
	defer chunks.Put(buf)
	// Room for a chunk's size before, and its end behind.
	const before, behind = 8, 2
	for {
		k, err := src.Read(buf[before : chunkSize-behind])
		if k > 0 {
			part := buf[before : before+k]
			if inChunks {
				size := fmt.Appendf(nil, "%x\r\n", k)
				part = append(buf[before-len(size):before-len(size)], size...)
				part = append(part[:len(size)+k], "\r\n"...)
			}
			if _, err := dst.Write(part); err != nil {
				return n, nil, err
			}
			n += int64(k)
			moved(k)
		}
		switch {
		case errors.Is(err, io.EOF):
			if inChunks {
				_, werr = io.WriteString(dst, "0\r\n\r\n")
			}
			return n, nil, werr
		case err != nil:
			return n, err, nil
		}
	}
}
