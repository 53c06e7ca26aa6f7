// What an agent needs and its run does not let through. It is suggested, and never
// added: the list is the user's.

package cli

import (
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
	n := need{agent: agent, host: gate.ParseHost(u.Hostname()), port: 443}
	if u.Scheme == "http" {
		n.port = 80
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		n.port = uint16(port)
	}
	return n
}

// hostsOf are what an agent needs: where its variable leads, or one of the hosts of its
// keys, or of its own.
// The value of a variable that is passed by name is a secret, and says nothing here.
func hostsOf(h harness.Harness, in policy.Input) []need {
	var out []need
	for _, e := range in.Env {
		name, value, constant := strings.Cut(e, "=")
		switch {
		case h.BaseURL == "" || name != h.BaseURL:
		case constant:
			out = []need{needOf(h.Name, value)}
		default:
			return nil
		}
	}
	if len(out) > 0 || slices.ContainsFunc(in.EnvFile, func(s policy.Secret) bool { return s.Name() == h.BaseURL }) {
		return out
	}
	hosts := h.Hosts
	var keyed []string
	for _, name := range h.Credentials {
		if at := h.HostOf[name]; at != "" && passes(in, name) {
			keyed = append(keyed, at)
		}
	}
	if keyed != nil {
		hosts = keyed
	}
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
	name := n.host.Name
	flag := "--allow"
	if ip := n.host.Addr; ip.IsValid() {
		if name = ip.String(); ip.Is6() {
			name = "[" + name + "]"
		}
		if ip.IsPrivate() || ip.IsLinkLocalUnicast() {
			flag = "--allow-private"
		}
	}
	if name == "localhost" || n.host.Addr.IsValid() && n.host.Addr.IsLoopback() {
		a.notef("%s has its model at %s, which is the sandbox itself inside; give it an address of this machine's, and --allow-private ADDRESS:%d", n.agent, quote(name), n.port)
		return
	}
	if n.port != 80 && n.port != 443 {
		name += fmt.Sprintf(":%d", n.port)
	}
	add := "add"
	if p.Net.GateName != "" {
		add = "give \"gate reload\", beside the rest of its list,"
	}
	a.notef("%s has its model at %s, which the allowlist does not let through; %s: %s %s", n.agent, quote(name), add, flag, quote(name))
}
