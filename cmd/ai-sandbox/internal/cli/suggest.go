// What an agent needs and its run does not let through. It is suggested, and never
// added: the list is the user's.

package cli

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// A need is a host that an agent's model is at.
type need struct {
	agent string
	host  gate.Host
	port  uint16
}

// needOf is the need of an address; one that makes no sense needs nothing.
func needOf(agent, address string) need {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return need{}
	}
	n := need{agent: agent, port: 443}
	if u.Scheme == "http" {
		n.port = 80
	}
	if u.Port() != "" {
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || port == 0 {
			return need{}
		}
		n.port = uint16(port)
	}
	if n.host, _, err = gate.ParseTarget(u.Hostname()); err != nil {
		n.host = gate.ParseHost(u.Hostname())
	}
	return n
}

// hostsOf are what an agent needs: where its variable leads, or one of the hosts of its
// keys, or of its own. Where its arguments or variables say whose the model is, nothing is known;
// a command of its own needs none. vars are the variables that it is given and logs in by.
// The value of one that is passed by name is a secret, and says nothing here.
func hostsOf(h harness.Harness, args []string, vars harness.Vars) []need {
	if h.OwnCommand(args) || h.Elsewhere(args, vars) {
		return nil
	}
	if address, ok := vars[h.BaseURL]; ok {
		if address == "" {
			return nil
		}
		return []need{needOf(h.Name, address)}
	}
	hosts := h.Hosts
	var keyed []string
	for _, name := range h.Credentials {
		if _, ok := vars[name]; ok && h.HostOf[name] != "" {
			keyed = append(keyed, h.HostOf[name])
		}
	}
	if keyed != nil {
		hosts = keyed
	}
	var out []need
	for _, name := range hosts {
		out = append(out, needOf(h.Name, "https://"+name))
	}
	return out
}

// suggest says what would let the first need through, where none is.
func (a *app) suggest(p policy.Policy, needs []need) {
	if !p.Net.Gated() || len(needs) == 0 || needs[0].agent == "" {
		return
	}
	for _, n := range needs {
		if n.agent != "" && gate.Explain(p.Net, n.host, n.port).Reason == "" {
			return
		}
	}
	n := needs[0]
	at := n.written()
	if ip := n.host.Addr; n.host.Name == "localhost" || strings.HasSuffix(n.host.Name, ".localhost") || ip.IsValid() && (ip.IsLoopback() || ip.IsUnspecified()) {
		a.notef("%s has its model at %s, which is the sandbox itself inside; give it an address of this machine's, and --allow-private ADDRESS:%d", n.agent, quote(at), n.port)
		return
	}
	flag, entry, why := way(p.Net, n)
	if flag == "" {
		a.notef("%s has its model at %s, which can't be let through (%s); give it a full name or an address, where that one is from", n.agent, quote(at), why)
		return
	}
	add := "add"
	if p.Net.GateName != "" {
		add = "give \"gate reload\", beside the rest of its list,"
	}
	a.notef("%s has its model at %s, which the allowlist does not let through; %s: %s %s", n.agent, quote(at), add, flag, quote(entry))
}

// written is a need as an entry is written.
func (n need) written() string {
	name := n.host.Name
	if ip := n.host.Addr; ip.IsValid() {
		if name = ip.String(); ip.Is6() && n.port != 80 && n.port != 443 {
			name = "[" + name + "]"
		}
	}
	if name == "" {
		name = n.host.Written
	}
	if n.port != 80 && n.port != 443 {
		name += fmt.Sprintf(":%d", n.port)
	}
	return name
}

// way is the flag and the entry by which the gate lets a need through, or why there are
// none. A name with an underscore can't be an entry, but the domain that it is in can.
func way(net policy.Net, n need) (flag, entry, why string) {
	texts := []string{n.written()}
	if label, parent, ok := strings.Cut(n.written(), "."); ok && strings.Contains(label, "_") {
		texts = append(texts, "."+parent)
	}
	for _, text := range texts {
		e, err := policy.ParseEntry(text)
		if err != nil {
			if wrong := (*policy.EntryError)(nil); why == "" && errors.As(err, &wrong) {
				why = wrong.Reason
			}
			continue
		}
		allow, private := net, net
		allow.Allow = append(slices.Clone(net.Allow), e)
		private.AllowPrivate = append(slices.Clone(net.AllowPrivate), e)
		if gate.Explain(allow, n.host, n.port).Reason == "" {
			return "--allow", e.String(), ""
		}
		answer := gate.Explain(private, n.host, n.port)
		if answer.Reason == "" {
			return "--allow-private", e.String(), ""
		}
		why = answer.Reason
	}
	return "", "", why
}
