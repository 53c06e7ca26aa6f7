// What the host and the entrypoint try out at every start, before the command.

package spec

import (
	"errors"
	"fmt"
	"strings"
)

// A Canary is a port of the host's loopback that answers a connection with Hello for
// the time of the start. In mode gated it has to answer from inside before the ruleset
// is there, or a refusal after that would say nothing, and not after it. Without a
// network it must not answer at all; that it does outside, the host has seen.
type Canary struct {
	Port  uint16 `json:"port"`
	Hello string `json:"hello"`
}

// A GateTest is what the gate has to answer through the only way that is left: a plain
// request for Host, a name that nobody has, with a page that holds Answer. That has the
// session's nonce and the hash of the policy in force.
type GateTest struct {
	Host   string `json:"host"`
	Answer string `json:"answer"`
}

func (c Canary) check() error {
	if c.Port == 0 || len(c.Hello) < 16 || len(c.Hello) > 128 || !plain(c.Hello) {
		return errors.New("canary: want a port and a word of letters and digits")
	}
	return nil
}

// Check reports what could be more than a name and a line.
func (g GateTest) Check() error {
	name, ok := strings.CutSuffix(g.Host, ".invalid") // RFC 6761, section 6.4
	if !ok || !plain(name) || !plain(strings.ReplaceAll(g.Answer, " ", "")) || len(g.Host)+len(g.Answer) > 1024 {
		return fmt.Errorf("gate test: %q is not a name under .invalid with a line to look for", g.Host)
	}
	return nil
}

// plain tells whether s is of letters, digits and some marks, and not empty.
func plain(s string) bool {
	return s != "" && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-._:=") == ""
}
