// --net learn: a run that finds out what it needs.

package policy

import "errors"

// Learning is what a policy that learns says of itself.
const Learning = "LEARN: the gate lets every public host through, at any port; what the command can read, it can send anywhere"

// learn turns the request for it into what it comes to.
func (in *Input) learn() (bool, error) {
	if in.Net != NetLearn {
		return false, nil
	}
	in.Net = ""
	switch {
	case in.GateName != "":
		return true, About(errors.New("net learn needs a gate of the run's own; drop gate"), "net", "gate")
	case in.Engine == EngineSquid:
		return true, About(errors.New("net learn is the builtin gate's; drop gate_engine squid"), "net", "gate_engine")
	}
	in.Engine = EngineBuiltin
	return true, nil
}

// Secrets are the variables whose values are secret.
func (p Policy) Secrets() []string {
	var out []string
	for _, e := range p.Env {
		if e.Secret {
			out = append(out, e.Name)
		}
	}
	return out
}
