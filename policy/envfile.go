// The grammar of an env_file, which holds secrets. It is ours and strict: a line
// never means what its writer did not see. docs/environment.md describes it.

package policy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxEnvFile bounds an env_file, in bytes.
const MaxEnvFile = 1 << 20

// ParseEnvFile reads an env_file. Errors name the file, as name is, and the line,
// and show no more of it than a variable's name. It reports every problem.
//
//	file     = *(line LF)            ; the last LF may be missing
//	line     = [blanks] ["#" text] / NAME "=" value
//	value    = plain / quoted
//	plain    = bytes, taken exactly; the first is no quote and no blank, the
//	           last no blank, and none is a control character
//	quoted   = a JSON string (RFC 8259)
func ParseEnvFile(name string, data []byte) ([]Secret, error) {
	var out []Secret
	var errs []error
	seen := map[string]int{}
	if len(data) > MaxEnvFile {
		return nil, fmt.Errorf("env_file %s has more than %d bytes; hand something over in a file of its own", name, MaxEnvFile)
	}
	for n, line := range bytes.Split(data, []byte("\n")) {
		s, err := parseEnvLine(string(line))
		if err == nil && s.name != "" && seen[s.name] != 0 {
			err = fmt.Errorf("%s is set again, after line %d; keep one of them", s.name, seen[s.name])
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("env_file %s:%d: %w", name, n+1, err))
		case s.name != "":
			seen[s.name] = n + 1
			out = append(out, s)
		}
	}
	return out, errors.Join(errs...)
}

// parseEnvLine returns a Secret without a name for a line without a variable.
func parseEnvLine(line string) (Secret, error) {
	none := Secret{}
	if text := strings.Trim(line, " \t"); text == "" || text[0] == '#' {
		return none, nil
	}
	if strings.HasSuffix(line, "\r") {
		return none, errors.New("the line ends with a carriage return; save the file with Unix line ends")
	}
	name, value, ok := strings.Cut(line, "=")
	switch {
	case strings.HasPrefix(line, "\ufeff"):
		return none, errors.New("the file begins with a byte order mark; save it without")
	case !ok:
		// The whole line may be a secret, so it is not shown.
		return none, errors.New("the line has no \"=\"; write NAME=value (nothing is taken from this environment: that is --env NAME)")
	case !ValidEnvName(name):
		return none, errors.New("what stands before \"=\" is not a variable's name; write NAME=value, without \"export\" and blanks")
	case value == "":
		return none, fmt.Errorf("%s has an empty value; give it one, or take the line out", name)
	case value[0] == '"':
		text, err := unquote(value)
		if err == nil && text == "" {
			err = errors.New("an empty value; give it one, or take the line out")
		}
		if err != nil {
			return none, fmt.Errorf("%s has %w", name, err)
		}
		return Secret{name, text}, nil
	case value[0] == '\'':
		return none, fmt.Errorf("%s has a value that begins with a single quote; write it without quotes, or in double quotes", name)
	case strings.Trim(value, " \t") != value:
		return none, fmt.Errorf("%s has a blank at the beginning or end of its value; put the value in double quotes", name)
	case strings.IndexFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) >= 0:
		return none, fmt.Errorf("%s has a control character in its value; put the value in double quotes, with the character as \\u00XX", name)
	}
	return Secret{name, value}, nil
}

var errQuoted = errors.New("a value in double quotes that is not a JSON string; jq -Rs . prints one")

// unquote reads a JSON string, and nothing that is not exactly one: the standard
// library's reader puts other characters in the place of what it can't read.
func unquote(s string) (string, error) {
	if !utf8.ValidString(s) || len(s) < 2 || s[len(s)-1] != '"' {
		return "", errQuoted
	}
	s = s[1 : len(s)-1]
	var out []byte
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"' || c < ' ':
			return "", errQuoted
		case c != '\\':
			out = append(out, c)
			i++
			continue
		}
		if i+1 == len(s) {
			return "", errQuoted
		}
		if s[i+1] != 'u' {
			at := strings.IndexByte(`"\/bfnrt`, s[i+1])
			if at < 0 {
				return "", errQuoted
			}
			out = append(out, "\"\\/\b\f\n\r\t"[at])
			i += 2
			continue
		}
		code, ok := unit(s[i:])
		i += 6
		if ok && utf16.IsSurrogate(code) {
			second, both := unit(s[min(i, len(s)):])
			i += 6
			code = utf16.DecodeRune(code, second)
			ok = both && code != utf8.RuneError
		}
		switch {
		case !ok:
			return "", errQuoted
		case code == 0:
			return "", errors.New("a NUL in its value, which no variable can hold; encode the value")
		}
		out = utf8.AppendRune(out, code)
	}
	return string(out), nil
}

// unit reads the \uXXXX that s begins with.
func unit(s string) (rune, bool) {
	if len(s) < 6 || s[:2] != `\u` {
		return 0, false
	}
	code, ok := hexDigits([]byte(s[2:6]), 4)
	return rune(code), ok //nolint:gosec // of 16 bits
}
