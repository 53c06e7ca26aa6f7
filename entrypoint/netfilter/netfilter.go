// Package netfilter carries a firewall.Ruleset into the kernel, in one batch,
// and reads the kernel's whole ruleset back to compare. It acts on the network
// namespace that it runs in.
package netfilter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/firewall"
	"ai-sandbox/entrypoint/spec"
)

// ErrDiffers: the kernel's ruleset is not the one that was asked for.
var ErrDiffers = errors.New("the kernel's ruleset is not the one that was asked for")

const family = nftables.TableFamilyINet

var hooks = map[string]*nftables.ChainHook{
	"input":   nftables.ChainHookInput,
	"forward": nftables.ChainHookForward,
	"output":  nftables.ChainHookOutput,
}

// answerTime bounds the wait for the kernel's answers, which come at once: to a batch
// that it can't take it gives one, and the library waits for as many as there are messages.
const answerTime = 20 * time.Second

func open() (*nftables.Conn, error) {
	c, err := nftables.New(nftables.WithSockOptions(func(n *netlink.Conn) error { return n.SetReadDeadline(time.Now().Add(answerTime)) }))
	if err != nil {
		return nil, fmt.Errorf("open netfilter's netlink: %w", err)
	}
	return c, nil
}

// Apply adds r in one batch: the kernel takes all of it or nothing.
func Apply(r firewall.Ruleset) error {
	c, err := open()
	if err != nil {
		return err
	}
	// The kernel loads the module for this, or says that there is none.
	if _, err := c.ListTables(); err != nil {
		return fmt.Errorf("the kernel has no nftables (%s nf_tables): %w", spec.MissingModule, err)
	}
	drop := nftables.ChainPolicyDrop
	table := c.AddTable(&nftables.Table{Name: r.Table, Family: family})
	for _, ch := range r.Chains {
		hook, ok := hooks[ch.Name]
		if !ok {
			return fmt.Errorf("chain %q has no hook", ch.Name)
		}
		chain := c.AddChain(&nftables.Chain{
			Name: ch.Name, Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: hook, Priority: nftables.ChainPriorityFilter, Policy: &drop,
		})
		for _, rule := range ch.Rules {
			exprs, err := expressions(rule)
			if err != nil {
				return err
			}
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs, UserData: comment(rule)})
		}
	}
	switch err := c.Flush(); {
	case errors.Is(err, unix.ENOENT): // of an expression (nf_tables_api.c, nft_expr_type_get)
		return fmt.Errorf("the kernel lacks a part of nftables (%s nft_ct, nft_log or nft_reject_inet): %w", spec.MissingModule, err)
	case err != nil:
		return fmt.Errorf("apply the ruleset: %w", err)
	}
	return nil
}

// Verify reads every table of every family back, with its chains and rules, and
// compares. The error is ErrDiffers, with what differs, when r is not exactly
// what the kernel has.
func Verify(r firewall.Ruleset) error {
	c, err := open()
	if err != nil {
		return err
	}
	tables, err := c.ListTables()
	if err != nil {
		return fmt.Errorf("read the tables back: %w", err)
	}
	// A dormant table, say, has a flag and no effect.
	if len(tables) != 1 || tables[0].Name != r.Table || tables[0].Family != family || tables[0].Flags != 0 {
		var names []string
		for _, t := range tables {
			names = append(names, fmt.Sprintf("%s (family %d, flags %d)", t.Name, t.Family, t.Flags))
		}
		return fmt.Errorf("%w: tables are %q", ErrDiffers, names)
	}
	chains, err := c.ListChains()
	if err != nil {
		return fmt.Errorf("read the chains back: %w", err)
	}
	if err := compareChains(r, chains); err != nil {
		return err
	}
	rules, err := readRules()
	if err != nil {
		return fmt.Errorf("read the rules back: %w", err)
	}
	return compareRules(r, rules)
}

func compareChains(r firewall.Ruleset, got []*nftables.Chain) error {
	if len(got) != len(r.Chains) {
		return fmt.Errorf("%w: %d chains instead of %d", ErrDiffers, len(got), len(r.Chains))
	}
	for i, want := range r.Chains {
		c := got[i]
		switch {
		case c.Table.Name != r.Table || c.Table.Family != family || c.Name != want.Name:
			return fmt.Errorf("%w: chain %s %s instead of %s", ErrDiffers, c.Table.Name, c.Name, want.Name)
		case c.Type != nftables.ChainTypeFilter ||
			c.Hooknum == nil || *c.Hooknum != *hooks[want.Name] ||
			c.Priority == nil || *c.Priority != *nftables.ChainPriorityFilter ||
			c.Policy == nil || *c.Policy != nftables.ChainPolicyDrop:
			return fmt.Errorf("%w: chain %s has another type, hook, priority or policy", ErrDiffers, want.Name)
		}
	}
	return nil
}

// A kernelRule is a rule as the kernel tells it.
type kernelRule struct {
	family nftables.TableFamily
	table  string
	chain  string
	exprs  []expr.Any
	// userdata is the comment.
	userdata []byte
}

func compareRules(r firewall.Ruleset, got []kernelRule) error {
	next := 0
	for _, c := range r.Chains {
		for i, want := range c.Rules {
			exprs, err := expressions(want)
			if err != nil {
				return err
			}
			if next == len(got) {
				return fmt.Errorf("%w: rule %d of chain %s is missing", ErrDiffers, i, c.Name)
			}
			g := got[next]
			next++
			if g.family != family || g.table != r.Table || g.chain != c.Name {
				return fmt.Errorf("%w: rule %d of chain %s is one of %s %s", ErrDiffers, i, c.Name, g.table, g.chain)
			}
			if !reflect.DeepEqual(g.exprs, exprs) || !bytes.Equal(g.userdata, comment(want)) {
				return fmt.Errorf("%w: rule %d of chain %s is not %q", ErrDiffers, i, c.Name, want)
			}
		}
	}
	if next != len(got) {
		return fmt.Errorf("%w: %d rules too many, the first in chain %s", ErrDiffers, len(got)-next, got[next].chain)
	}
	return nil
}

// readRules dumps the rules of every family. The library's own reading leaves
// out expressions that it does not know, so that one of those would go unseen.
func readRules() ([]kernelRule, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	msgs, err := c.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE,
			Flags: netlink.Request | netlink.Dump,
		},
		Data: []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return nil, err
	}
	var rules []kernelRule
	for _, m := range msgs {
		r, err := decodeRule(m.Data)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func decodeRule(data []byte) (kernelRule, error) {
	if len(data) < 4 {
		return kernelRule{}, errors.New("a rule without a header")
	}
	r := kernelRule{family: nftables.TableFamily(data[0])}
	ad, err := decoder(data[4:])
	if err != nil {
		return r, err
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_RULE_TABLE:
			r.table = ad.String()
		case unix.NFTA_RULE_CHAIN:
			r.chain = ad.String()
		case unix.NFTA_RULE_EXPRESSIONS:
			ad.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					var e expr.Any
					list.Nested(func(nad *netlink.AttributeDecoder) (err error) {
						e, err = decodeExpr(r.family, nad)
						return err
					})
					r.exprs = append(r.exprs, e)
				}
				return nil
			})
		case unix.NFTA_RULE_USERDATA:
			r.userdata = ad.Bytes()
		case unix.NFTA_RULE_HANDLE, unix.NFTA_RULE_POSITION, unix.NFTA_RULE_PAD:
		default:
			return r, fmt.Errorf("a rule of chain %s has an attribute %d", r.chain, ad.Type())
		}
	}
	return r, ad.Err()
}

func decodeExpr(fam nftables.TableFamily, ad *netlink.AttributeDecoder) (expr.Any, error) {
	var name string
	var data []byte
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_EXPR_NAME:
			name = ad.String()
		case unix.NFTA_EXPR_DATA:
			data = ad.Bytes()
		}
	}
	e := known(name)
	if e == nil {
		return nil, fmt.Errorf("%w: an expression %q", ErrDiffers, name)
	}
	if err := expr.Unmarshal(byte(fam), data, e); err != nil {
		return nil, fmt.Errorf("expression %q: %w", name, err)
	}
	if counter, ok := e.(*expr.Counter); ok {
		*counter = expr.Counter{} // packets may have passed
	}
	return e, nil
}

// known returns an empty expression of those that expressions makes.
func known(name string) expr.Any {
	switch name {
	case "meta":
		return &expr.Meta{}
	case "cmp":
		return &expr.Cmp{}
	case "payload":
		return &expr.Payload{}
	case "ct":
		return &expr.Ct{}
	case "bitwise":
		return &expr.Bitwise{}
	case "counter":
		return &expr.Counter{}
	case "immediate":
		return &expr.Verdict{} // we make no other immediate
	case "reject":
		return &expr.Reject{}
	case "log":
		return &expr.Log{}
	}
	return nil
}

func decoder(b []byte) (*netlink.AttributeDecoder, error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err == nil {
		ad.ByteOrder = binary.BigEndian
	}
	return ad, err
}

// CheckShut tries to delete the table and wants to hear that this is not
// permitted. It is for a process that has dropped its privileges.
func CheckShut(table string) error {
	c, err := open()
	if err != nil {
		return err
	}
	c.DelTable(&nftables.Table{Name: table, Family: family})
	err = c.Flush()
	switch {
	case errors.Is(err, unix.EPERM):
		return nil
	case err != nil:
		return fmt.Errorf("try to change the ruleset after the drop: %w", err)
	}
	return errors.New("the ruleset could be changed after the drop")
}
