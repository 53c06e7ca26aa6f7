// --net learn, which is for one run and asked for by hand.

package cli

import (
	"fmt"
	"strings"

	"ai-sandbox/policy"
)

// learns refuses net learn where somebody else asks for it, and where it could give
// secrets away that nobody has said may be.
func (s setup) learns(p policy.Policy) error {
	if !p.Net.Learn {
		return nil
	}
	for _, it := range s.settings["net"] {
		if it.Value == policy.NetLearn && !strings.HasPrefix(it.Origin, "--") {
			return fmt.Errorf("net = learn (from %s) lets every public host through and is no setting to keep; give --net learn to the run that is to learn", it.Origin)
		}
	}
	if names := p.Secrets(); len(names) > 0 && !s.settings.Bool("learn_with_secrets") {
		return fmt.Errorf("with --net learn the command could send what it is given anywhere, and it is given %s; pass none of them, or say --learn-with-secrets", policy.Printable(strings.Join(names, ", ")))
	}
	return nil
}
