// Frames: how a message crosses a FIFO. Four bytes of length, big endian, then
// that many bytes of JSON, read strictly.

package spec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// WriteFrame writes v, a ToGuest or a ToHost, as one frame in one write.
func WriteFrame(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a frame: %w", err)
	}
	if len(body) > MaxFrame {
		return fmt.Errorf("a frame of %d bytes is longer than %d", len(body), MaxFrame)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	if _, err := w.Write(append(frame, body...)); err != nil {
		return fmt.Errorf("write a frame: %w", err)
	}
	return nil
}

// ReadFrame reads one frame into v. The error is io.EOF, unwrapped, when the
// stream ends between frames; an end within one is io.ErrUnexpectedEOF. An
// unknown field, a longer frame and anything after the value are refused.
func ReadFrame(r io.Reader, v any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		return fmt.Errorf("read a frame: %w", err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n == 0 || n > MaxFrame {
		return fmt.Errorf("a frame of %d bytes is not between 1 and %d", n, MaxFrame)
	}
	// The buffer grows with what arrives: a length alone takes no memory.
	var body bytes.Buffer
	if _, err := io.CopyN(&body, r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read a frame: %w", err)
	}
	return decode(body.Bytes(), v)
}

func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode a frame: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("decode a frame: something follows the value")
	}
	return nil
}

// bare and bareExec are Spec and Exec without their methods.
type (
	bare     Spec
	bareExec Exec
)

// wire and wireExec are what is sent: what the user wrote may be any bytes, and
// a JSON string would not keep them.
type (
	wire struct {
		*bare
		Command [][]byte `json:"command"`
		Env     [][]byte `json:"env"`
	}
	wireExec struct {
		*bareExec
		Command [][]byte `json:"command"`
		Env     [][]byte `json:"env"`
	}
)

// MarshalJSON sends Command and Env as bytes.
func (s Spec) MarshalJSON() ([]byte, error) {
	b := bare(s)
	return json.Marshal(wire{&b, toBytes(s.Command), toBytes(s.Env)})
}

// UnmarshalJSON is the reverse of MarshalJSON, and strict: a decoder does not
// hand its own strictness down.
func (s *Spec) UnmarshalJSON(b []byte) error {
	w := wire{bare: (*bare)(s)}
	if err := decode(b, &w); err != nil {
		return err
	}
	s.Command, s.Env = toStrings(w.Command), toStrings(w.Env)
	return nil
}

// MarshalJSON sends Command and Env as bytes.
func (e Exec) MarshalJSON() ([]byte, error) {
	b := bareExec(e)
	return json.Marshal(wireExec{&b, toBytes(e.Command), toBytes(e.Env)})
}

// UnmarshalJSON is as Spec's.
func (e *Exec) UnmarshalJSON(b []byte) error {
	w := wireExec{bareExec: (*bareExec)(e)}
	if err := decode(b, &w); err != nil {
		return err
	}
	e.Command, e.Env = toStrings(w.Command), toStrings(w.Env)
	return nil
}

func toBytes(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

func toStrings(list [][]byte) []string {
	var out []string
	for _, b := range list {
		out = append(out, string(b))
	}
	return out
}
