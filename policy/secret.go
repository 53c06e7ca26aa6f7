// Secrets: values that the command gets and that nothing of ours ever shows.

package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Secret is the value of a variable. However it is printed or encoded, it shows
// as its name in brackets; only Reveal tells it.
type Secret struct{ name, value string }

// NewSecret is the value of the variable name.
func NewSecret(name, value string) Secret { return Secret{name, value} }

// Name is the variable's name.
func (s Secret) Name() string { return s.name }

// Reveal is the value itself: for the sealed message, and for nothing that is
// written down.
func (s Secret) Reveal() string { return s.value }

// String is what stands for the value.
func (s Secret) String() string { return "[" + s.name + "]" }

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// Format is String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText is String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON is String, as a JSON string.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(s.String())), nil }

// MinSecret is the fewest bytes that a secret may have, line ends not counted,
// and minDistinct how many different ones. What is shorter stands in other words
// and numbers, too: hiding it would garble what we say, and where it is hidden
// would tell what it is. Eight hex digits or letters are rare enough in our own
// text, and no service hands out tokens that are shorter.
const (
	MinSecret   = 8
	minDistinct = 4
)

// maxVariable is the longest "NAME=value" that a program can be started with, its
// NUL included (execve(2), MAX_ARG_STRLEN), and maxEnv bounds all of them
// together: the kernel lets arguments and environment have a quarter of the
// stack's limit, of 8 MiB by default.
const (
	maxVariable = 128 << 10
	maxEnv      = 1 << 20
)

// checkEntry refuses a variable that no program can be started with.
func checkEntry(name, value string) error {
	switch {
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("env %s has a NUL byte in its value, which no variable can hold; encode the value", name)
	case len(name)+len(value)+2 > maxVariable:
		return fmt.Errorf("env %s has a value of %d bytes, and the kernel passes on at most %d; hand it over in a file", name, len(value), maxVariable-len(name)-2)
	}
	return nil
}

// CheckSecrets refuses values that could not be passed on exactly, and secrets
// that could not be hidden: what is too short, and what the policy shows anyway.
// values are those of all variables that the policy passes and does not hold.
func (p Policy) CheckSecrets(values map[string]Secret) error {
	var errs []error
	total := 0
	var secrets []Secret
	from := map[string]string{} // which setting names it
	for _, e := range p.Env {
		value := e.Value
		if e.Passed() {
			value = values[e.Name].value
		}
		total += len(e.Name) + len(value) + 2
		from[e.Name] = "env=" + e.Name
		if e.From == FromFile {
			from[e.Name] = "env_file"
		}
		if err := checkEntry(e.Name, value); err != nil {
			errs = append(errs, About(err, from[e.Name]))
			continue
		}
		if !e.Secret {
			continue
		}
		if err := checkHidden(e.Name, value); err != nil {
			errs = append(errs, About(err, from[e.Name]))
			continue
		}
		secrets = append(secrets, values[e.Name])
	}
	if total > maxEnv {
		errs = append(errs, fmt.Errorf("the environment has %d bytes, more than %d; hand something over in a file", total, maxEnv))
	}
	if len(errs) > 0 || len(secrets) == 0 {
		return errors.Join(errs...)
	}
	// The command line is the one part of a policy that printouts hide secrets in.
	p.Command = nil
	shown, err := p.JSON()
	if err != nil {
		return err
	}
	if text := string(shown); NewRedactor(secrets).Text(text) != text {
		for _, s := range secrets {
			if NewRedactor([]Secret{s}).Text(text) != text {
				errs = append(errs, About(fmt.Errorf("env %s has a value that also stands in a path, a host or a constant of this run, where it can't be hidden; if it is no secret, make it a constant: env %s=VALUE", s.name, s.name), from[s.name]))
			}
		}
	}
	return errors.Join(errs...)
}

// checkHidden refuses a secret that can't be hidden without garbling other text.
func checkHidden(name, value string) error {
	text := joinLines(value)
	var why string
	switch {
	case len(text) < MinSecret:
		why = fmt.Sprintf("shorter than %d bytes", MinSecret)
	case distinct(text) < minDistinct:
		why = fmt.Sprintf("of fewer than %d different characters", minDistinct)
	default:
		return nil
	}
	return fmt.Errorf("env %s has a value %s, which can't be hidden without garbling other words; if it is no secret, make it a constant: env %s=VALUE", name, why, name)
}

// distinct counts the different bytes of s, upper and lower case as one.
func distinct(s string) int {
	var seen [256]bool
	n := 0
	for i := range len(s) {
		if c := fold(s[i]); !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n
}

// Redacted is the policy for a printout: its command line with secrets hidden.
func (p Policy) Redacted(r *Redactor) Policy {
	if r == nil {
		return p
	}
	shown := make([]string, len(p.Command))
	for i, arg := range p.Command {
		shown[i] = r.Text(arg)
	}
	p.Command = shown
	return p
}
