// Which settings an error is about. Where they stand, the caller knows.

package policy

// An AboutError is an error about settings, each "key", or "key=value" where one entry
// of a list is meant (of env, by the name of the variable).
type AboutError struct {
	Settings []string
	Err      error
}

// About is err as one about settings, or nil.
func About(err error, settings ...string) error {
	if err == nil {
		return nil
	}
	return &AboutError{settings, err}
}

// Error is the error's own text.
func (e *AboutError) Error() string { return e.Err.Error() }

// Unwrap is the error itself.
func (e *AboutError) Unwrap() error { return e.Err }
