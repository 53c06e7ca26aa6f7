//go:build aisb_testhook || kernel

// A fault for tests: something changes the ruleset between Apply and Verify.
// It is not part of a program that was built without the tag.

package netfilter

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/firewall"
)

// Tampers are what Tamper knows to do.
var Tampers = []string{"delete", "reorder", "widen", "append", "policy", "dormant", "extra-table", "extra-chain"}

// Tamper changes one thing of r in the kernel.
func Tamper(r firewall.Ruleset, how string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: r.Table, Family: family}
	output := &nftables.Chain{Name: "output", Table: table}
	want := r.Chains[len(r.Chains)-1].Rules
	rewrite := func(rules []firewall.Rule) error {
		c.FlushChain(output)
		for _, rule := range rules {
			exprs, err := expressions(rule)
			if err != nil {
				return err
			}
			c.AddRule(&nftables.Rule{Table: table, Chain: output, Exprs: exprs, UserData: comment(rule)})
		}
		return nil
	}
	switch how {
	case "delete":
		err = rewrite(want[:len(want)-1])
	case "reorder":
		rules := slices.Clone(want)
		slices.Reverse(rules)
		err = rewrite(rules)
	case "widen":
		rules := slices.Clone(want)
		if i := slices.IndexFunc(rules, func(r firewall.Rule) bool { return r.TCPDst != 0 }); i >= 0 {
			rules[i].TCPDst = 0 // every port of the host's loopback
		} else {
			rules[0].OutIface = ""
		}
		err = rewrite(rules)
	case "append":
		err = rewrite(append(slices.Clone(want), firewall.Rule{Verdict: firewall.Accept}))
	case "policy":
		accept := nftables.ChainPolicyAccept
		c.AddChain(&nftables.Chain{
			Name: output.Name, Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter, Policy: &accept,
		})
	case "flush": // which Verify would see, too
		c.DelTable(table)
	case "dormant":
		return setDormant(r.Table)
	case "extra-table":
		c.AddTable(&nftables.Table{Name: "other", Family: nftables.TableFamilyARP})
	case "extra-chain":
		c.AddChain(&nftables.Chain{Name: "other", Table: table})
	default:
		return fmt.Errorf("no way to tamper is called %q", how)
	}
	if err != nil {
		return err
	}
	return c.Flush()
}

// setDormant takes the whole table out of use. The library cannot.
func setDormant(table string) error {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: append([]byte(table), 0)},
		{Type: unix.NFTA_TABLE_FLAGS, Data: []byte{0, 0, 0, 1}},
	})
	if err != nil {
		return err
	}
	header := func(fam, subsys byte) []byte { return []byte{fam, unix.NFNETLINK_V0, 0, subsys} }
	msgs, err := c.SendMessages([]netlink.Message{
		{Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_BEGIN, Flags: netlink.Request}, Data: header(0, unix.NFNL_SUBSYS_NFTABLES)},
		{
			Header: netlink.Header{
				Type:  unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE,
				Flags: netlink.Request | netlink.Acknowledge,
			},
			Data: append(header(byte(family), 0), attrs...),
		},
		{Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_END, Flags: netlink.Request}, Data: header(0, unix.NFNL_SUBSYS_NFTABLES)},
	})
	if err != nil || len(msgs) == 0 {
		return err
	}
	_, err = c.Receive()
	return err
}
