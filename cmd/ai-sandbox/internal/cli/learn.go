// --net learn, which is for one run and asked for by hand.

package cli

import (
	"fmt"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
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
	if s.settings.Bool("learn_with_secrets") {
		return nil
	}
	names, without := p.Secrets(), "pass none of them"
	mounts, login := s.secretMounts(p)
	if names = append(names, mounts...); len(names) == 0 {
		return nil
	}
	if login {
		without += " (--credentials env leaves the file with a login out)"
	}
	return fmt.Errorf("with --net learn the command could send what it is given anywhere, and it is given %s; %s, or say --learn-with-secrets",
		policy.Printable(strings.Join(names, ", ")), without)
}

// secretMounts tell what the command can read of the host's that is, holds or lies among
// logins and keys, whoever asked for it. login is that there is one of an agent.
func (s setup) secretMounts(p policy.Policy) (names []string, login bool) {
	for _, m := range p.Mounts {
		if m.Kind != policy.KindBind {
			continue
		}
		if agent, ok := harness.LoginIn(s.Facts.Home, m.Source, host.Resolve); ok {
			names, login = append(names, fmt.Sprintf("%s's login (%s)", agent, policy.Quote(m.Source))), true
		} else if s.Facts.ShowsKeys(m.Source) {
			names = append(names, policy.Quote(m.Source))
		}
	}
	return names, login
}
