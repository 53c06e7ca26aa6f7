// Further commands in a running session. Each is a child of ours like the first
// one, so it has the same drop by inheritance; what differs is where its standard
// streams come from.

package entrypoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// exec starts one, and answers. The error is the host's end; one that can't be
// started is told and ends nothing.
func (s *session) exec(e *spec.Exec) error {
	state := &spec.ExecState{ID: e.ID, Started: true}
	if code, err := s.startExec(e); err != nil {
		state.Started = false
		state.Exited = &spec.Exited{Code: code, Error: strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	return s.send(spec.ToHost{ExecState: state})
}

func (s *session) startExec(e *spec.Exec) (code int, err error) {
	if err := spec.ValidateExec(*e); err != nil {
		return spec.ExitBadSpec, err
	}
	if s.running[e.ID] != nil {
		return spec.ExitBadSpec, fmt.Errorf("exec %d still runs", e.ID)
	}
	execs := len(s.running)
	if s.running[0] != nil {
		execs--
	}
	if execs >= spec.MaxExecs {
		return 126, fmt.Errorf("%d commands run in the session already: wait for one of them to end", execs)
	}
	c := &child{id: e.ID}
	if e.TTY {
		return s.execTerminal(c, e)
	}
	files, err := execFiles(e.ID)
	if err != nil {
		return 126, err
	}
	defer func() {
		for _, fd := range files {
			unix.Close(fd) // the command has its own
		}
	}()
	return s.launch(c, e.Command, e.Env, e.Workdir, files, false)
}

// execFiles opens the FIFOs of a command without a terminal.
func execFiles(id int) (files [3]int, err error) {
	in, out, errs := spec.ExecFIFOs(id)
	flags := [3]int{unix.O_RDONLY, unix.O_WRONLY, unix.O_WRONLY}
	for i, name := range []string{in, out, errs} {
		files[i], err = openFIFOFd(filepath.Join(spec.Dir, name), flags[i])
		if err == nil {
			// Only the opening must not wait; programs expect of their
			// standard streams that they do.
			if err = unix.SetNonblock(files[i], false); err != nil {
				unix.Close(files[i])
			}
		}
		if err != nil {
			for _, fd := range files[:i] {
				unix.Close(fd)
			}
			return files, err
		}
	}
	return files, nil
}

// execTerminal starts one with a terminal that its FIFOs are copied to and from.
func (s *session) execTerminal(c *child, e *spec.Exec) (code int, err error) {
	inName, outName, _ := spec.ExecFIFOs(e.ID)
	in, inErr := openFIFO(filepath.Join(spec.Dir, inName), unix.O_RDONLY)
	out, outErr := openFIFO(filepath.Join(spec.Dir, outName), unix.O_WRONLY)
	term, termErr := newPTY(e.Cols, e.Rows)
	code, err = 126, errors.Join(inErr, outErr, termErr)
	if err == nil {
		code, err = s.launch(c, e.Command, e.Env, e.Workdir, term.files(), true)
	}
	if err != nil {
		for _, f := range []*os.File{in, out} {
			if f != nil {
				f.Close()
			}
		}
		if term != nil {
			term.close()
		}
		return code, err
	}
	c.term = term
	term.attach(in, out)
	go func() {
		<-term.out
		in.Close()
		out.Close()
	}()
	return 0, nil
}
