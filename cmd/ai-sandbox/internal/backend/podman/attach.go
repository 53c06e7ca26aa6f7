// Attaching to a container's streams. The bindings' own Attach cannot switch the
// detach keys off (an empty list is an error there), leaves at the first end of
// standard input with a terminal, and replaces the connection's transport; so
// the request is made with the bindings' connection and the stream is read here.

package podman

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/containers/podman/v5/pkg/bindings/containers"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
)

// upgraded is what a 101 answer's body is (net/http).
type upgraded interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Attach implements backend.Backend. podman sets the container up (conmon,
// network) while it answers, so that Start has little left to do.
func (c *Client) Attach(ctx context.Context, id string, tty bool, s backend.Streams, ready chan<- struct{}) error {
	conn, cancel := c.with(ctx)
	defer cancel()
	client, err := bindings.GetClient(conn)
	if err != nil {
		return fmt.Errorf("attach to the container: %w", err)
	}
	params := url.Values{
		"stream": {"true"}, "stdin": {"true"}, "stdout": {"true"}, "stderr": {"true"},
		// Present and empty: no detach keys, every byte is the command's.
		"detachKeys": {""},
	}
	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"tcp"}}
	resp, err := client.DoRequest(conn, nil, http.MethodPost, "/containers/%s/attach", params, header, id)
	if err != nil {
		return fmt.Errorf("attach to the container: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		err := translate(resp.Process(nil))
		if err == nil {
			err = fmt.Errorf("podman answered %s", resp.Status)
		}
		return fmt.Errorf("attach to the container: %w", c.pastaError(err))
	}
	stream, ok := resp.Body.(upgraded)
	if !ok {
		return errors.New("attach to the container: the answer is not a stream")
	}
	close(ready)
	go func() {
		// Ends with the program if nothing ever comes from standard input.
		if s.Stdin != nil {
			if _, err := io.Copy(stream, s.Stdin); err != nil {
				return // the container has ended
			}
		}
		// The command sees the end of its input.
		_ = stream.CloseWrite()
	}()
	if tty {
		_, err = io.Copy(s.Stdout, stream)
	} else {
		err = demux(stream, s)
	}
	if err != nil {
		return fmt.Errorf("read the command's output: %w", err)
	}
	return nil
}

// pastaError says what to do when pasta does not start and the service is not
// ours: podman puts what containers.conf says before our options, and pasta takes
// neither of two that contradict each other.
func (c *Client) pastaError(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ") // pasta's comes in lines
	c.mu.Lock()
	own := c.socket == c.ownSocket()
	c.mu.Unlock()
	if own || !strings.Contains(text, "pasta failed") {
		return err
	}
	return fmt.Errorf("%s; %s", text, c.advice([]string{setPasta}))
}

// demux reads the frames that standard output and error come in.
func demux(r io.Reader, s backend.Streams) error {
	buf := make([]byte, 32<<10)
	for {
		stream, size, err := containers.DemuxHeader(r, buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		frame, err := containers.DemuxFrame(r, buf, size)
		if err != nil {
			return err
		}
		switch stream {
		case 0, 1:
			_, err = s.Stdout.Write(frame)
		case 2:
			_, err = s.Stderr.Write(frame)
		default:
			err = fmt.Errorf("podman: %q", frame)
		}
		if err != nil {
			return err
		}
	}
}
