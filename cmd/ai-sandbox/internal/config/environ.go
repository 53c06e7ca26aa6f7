// The caller's environment, read once.

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// EnvPrefix begins the name of each of our variables. Those that begin with
// TestPrefix belong to the tests and are not read here.
const (
	EnvPrefix  = "AISB_"
	TestPrefix = "AISB_TEST_"
)

// Environ is a copy of the caller's environment.
type Environ map[string]string

// ReadEnviron reads the environment of the process.
func ReadEnviron() Environ { return NewEnviron(os.Environ()) }

// NewEnviron takes "NAME=value" strings.
func NewEnviron(list []string) Environ {
	env := make(Environ, len(list))
	for _, s := range list {
		if name, value, ok := strings.Cut(s, "="); ok && name != "" {
			env[name] = value
		}
	}
	return env
}

// Has tells whether a variable has a value that is not empty.
func (e Environ) Has(name string) bool { return e[name] != "" }

// Dirs are the directories that the environment names, as it names them.
type Dirs struct {
	Home string
	// Config, State and Cache are ours; Runtime is the user's, or "".
	Config, State, Cache, Runtime string
}

// Dirs follows the XDG base directory specification. home is what the user
// database says, for where HOME is unset.
func (e Environ) Dirs(home string) Dirs {
	if e.Has("HOME") {
		home = e["HOME"]
	}
	dir := func(name, otherwise string) string {
		base := e[name]
		if base == "" {
			base = filepath.Join(home, otherwise)
		}
		return filepath.Join(base, "ai-sandbox")
	}
	return Dirs{
		Home:    home,
		Config:  dir("XDG_CONFIG_HOME", ".config"),
		State:   dir("XDG_STATE_HOME", ".local/state"),
		Cache:   dir("XDG_CACHE_HOME", ".cache"),
		Runtime: e["XDG_RUNTIME_DIR"],
	}
}

// FromEnviron reads our variables. A list is separated by white space; a
// variable that is set but empty empties what the file says.
func FromEnviron(env Environ) ([]Item, error) {
	names := make([]string, 0, 8)
	for name := range env {
		if strings.HasPrefix(name, EnvPrefix) && !strings.HasPrefix(name, TestPrefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var items []Item
	var errs errorList
	for _, name := range names {
		o, ok := Lookup(strings.ToLower(strings.TrimPrefix(name, EnvPrefix)))
		switch {
		case !ok || name != o.Env():
			errs.add(&Error{Origin: "the environment", Text: fmt.Sprintf("variable %q is not one of ai-sandbox's", name),
				Fix: suggest(name, envNames(), "unset it")})
			continue
		case !o.In(InEnv):
			errs.add(&Error{Origin: "the environment", Text: fmt.Sprintf("%s can't be set by a variable", o.Key), Fix: "use --" + o.Flag()})
			continue
		}
		values := []string{env[name]}
		if o.Kind == List {
			values = strings.Fields(env[name])
		}
		if len(values) == 0 {
			values = []string{""}
		}
		for _, v := range values {
			items = append(items, Item{Key: o.Key, Value: v, Origin: name})
		}
	}
	return items, errs.join()
}

func envNames() []string {
	var out []string
	for _, o := range Options {
		if o.In(InEnv) {
			out = append(out, o.Env())
		}
	}
	return out
}
