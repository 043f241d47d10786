package enforcer_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// outsides are addresses outside of the cluster, of both families, the nth of each.
func outsides(n byte) []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, n}), netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 0, 1, 15: n})}
}

// probes asserts what packets of the client come to, on a port of addresses.
func (p *peering) probes(when, network string, want lab.Outcome, port uint16, to ...netip.Addr) {
	p.t.Helper()
	for _, a := range to {
		diff.Equal(p.t, want, p.Pod("client").ProbeFor(network, netip.AddrPortFrom(a, port), lab.PatienceFor(want)), when, network, "to", a, "port", port)
	}
}

// TestLostTables: while a table of ours is gone nothing opens, what is open goes on as far as
// the other net asks, and all comes back.
func TestLostTables(t *testing.T) {
	t.Parallel()
	for _, network := range networks {
		for what, commands := range map[string][]string{
			"first table":  {"delete table inet namegate"},
			"bridge table": {"delete table bridge namegate"},
			"second net":   {"delete table inet namegate-net"},
			"both nets":    {"flush set inet namegate-net selected4", "flush chain inet namegate judge"},
			"subjects":     {"flush map inet namegate pods4", "flush map inet namegate pods6"},
			"grants":       {"flush ruleset"},
		} {
			t.Run(string(network)+"/"+what, func(t *testing.T) {
				t.Parallel()
				p := newPeering(t, nftablesPlane, network)
				p.allowed = []string{"tcp/80 one.test", "tcp/80-81 wide.test"}
				p.apply()
				p.answer("client", "one.test", outsides(1)...)
				p.answer("client", "wide.test", outsides(2)...)
				granted := slices.Concat(outsides(1), outsides(2))
				p.probes("at first", "tcp", lab.Answered, 80, granted...)
				c := p.dial("client", granted[0], 80)
				for _, command := range commands {
					_, err := p.Node.Run("nft", strings.Fields(command)...)
					fatal.If(t, err)
				}
				switch what {
				case "first table":
					p.probes("lost", "tcp", lab.Silent, 80, outsides(3)...)
					p.probes("lost, granted", "tcp", lab.Silent, 80, granted[0])
					p.goOn("lost", true, c)
				case "second net", "bridge table":
					p.probes("lost", "tcp", lab.Refused, 80, outsides(3)...)
					p.probes("lost, granted", "tcp", lab.Answered, 80, granted...)
					p.goOn("lost", true, c)
				}
				p.reconcile()
				p.probes("restored", "tcp", lab.Refused, 80, outsides(3)...)
				p.probes("restored, granted", "tcp", lab.Answered, 80, granted...)
				p.probes("restored, granted", "tcp", lab.Answered, 81, outsides(2)...)
				p.goOn("restored", true, c)
				if d := p.e.Deviations(); len(d) != 0 {
					t.Errorf("deviations: %v", d)
				}
			})
		}
	}
}

// TestDenyOutlivesAcceptWithoutAnAgent: a packet leaves an entry of a rule with a short
// reuseSeconds for as long as another rule, of any tier, may have the address open.
func TestDenyOutlivesAcceptWithoutAnAgent(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		at := []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:1::1")}
		brief := byName(policy.Admin, policy.Deny, "tcp/80", "brief", "brief.test")
		brief.TTL = policy.TTL{Min: time.Millisecond, Max: time.Millisecond, Reuse: time.Second}
		brief.ID = brief.NewID()
		brief.Matches[0].TTL = brief.TTL
		lower := byName(policy.Admin, policy.Accept, policy.AnyPort, "lower", "lower.test")
		p.labels["client"] = "client"
		for _, longest := range []time.Duration{2 * time.Hour, 3 * time.Hour, time.Hour} { // a change too, after which earlier grants live on
			lower.TTL = policy.TTL{Min: longest, Max: longest, Grace: time.Minute, Reuse: time.Hour}
			lower.Matches[0].TTL = lower.TTL
			p.ordered = map[string][]*policy.Rule{"client": {brief, lower}}
			p.apply()
			p.answer("client", "brief.test", at...)
			p.answer("client", "lower.test", at...)
			for _, a := range at {
				diff.Equal(t, lab.Refused, p.Pod("client").ProbeFor("tcp", netip.AddrPortFrom(a, 80), lab.PatienceFor(lab.Refused)), a)
				if denies, accepts := p.entryLives(brief.ID, a), p.entryLives(lower.ID, a); accepts < longest || denies < accepts {
					t.Errorf("after a packet to %s the entry that denies lives for %v, the other for %v", a, denies, accepts)
				}
			}
		}
	})
}

// entryLives is for how long the kernel keeps an entry, 0 for none.
func (p *peering) entryLives(id policy.RuleID, a netip.Addr) (left time.Duration) {
	p.t.Helper()
	fatal.If(p.t, p.Node.Do(func() error {
		tables, err := layout.Open()
		if err != nil {
			return err
		}
		defer tables.Close()
		return tables.Store.ListEntries([]string{string(id)}, func(_ string, part []timed.Entry) {
			for _, e := range part {
				if e.Addr == a {
					left = e.Timeout
				}
			}
		})
	}))
	return left
}

// listed returns the grants in the kernel, by their ports or rule and their address.
func (p *peering) listed() (out map[string]dataplane.Grant) {
	p.t.Helper()
	fatal.If(p.t, p.Node.Do(func() (err error) { out, err = p.e.Listed(); return err }))
	return out
}

// used asserts which grants packets matched since uses were as before.
func (p *peering) used(when string, before map[string]dataplane.Grant, want map[string]bool) {
	p.t.Helper()
	now := p.listed()
	for grant, used := range want {
		if g, there := now[grant]; !there || g.Uses != before[grant].Uses != used {
			p.t.Errorf("%s: %s has %d uses after %d (found: %v), want more: %v", when, grant, g.Uses, before[grant].Uses, there, used)
		}
	}
}

// TestGrantsInUse: a grant is used by a packet that it allows, and by none that is denied, of
// another pod, or of a connection that is admitted already. No packet renews a grant.
func TestGrantsInUse(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		accept := byName(policy.Admin, policy.Accept, "tcp/80", "accept", "accepted.test")
		deny := byName(policy.Admin, policy.Deny, "tcp/80", "deny", "denied.test")
		shared := byName(policy.Admin, policy.Accept, "tcp", "shared", "shared.test")
		p.ordered = map[string][]*policy.Rule{"client": {accept, deny, shared}}
		p.allowed = []string{"tcp/80 one.test", "udp/80-81,tcp/81 wide.test", "any any.test"}
		p.apply()
		for range 2 {
			fatal.If(p.t, p.Node.Do(p.e.Beat))
		}
		names := map[string][]netip.Addr{"one.test": outsides(1), "wide.test": outsides(2), "any.test": outsides(3), "accepted.test": outsides(4), "denied.test": outsides(5), "shared.test": outsides(5)}
		grants := map[string]string{"one.test": "tcp/80", "wide.test": "tcp/81,udp/80-81", "any.test": "any", "accepted.test": string(accept.ID), "shared.test": string(shared.ID)}
		all := func(used bool) map[string]bool {
			out := map[string]bool{}
			for name, grant := range grants {
				for _, a := range names[name] {
					out[grant+" "+a.String()] = used
				}
			}
			return out
		}
		until := time.Now().Add(time.Hour)
		written := func(when string) {
			t.Helper()
			until = until.Add(time.Hour)
			for name, at := range names {
				p.grantUntil(name, until, at...)
			}
		}
		written("new")
		before, began := p.listed(), time.Now()
		for i, a := range outsides(1) {
			p.probes("denied", "tcp", lab.Refused, 81, a)
			p.probes("denied", "tcp", lab.Refused, 80, outsides(2)[i], outsides(5)[i])
			diff.Equal(t, lab.Answered, p.Pod("other").ProbeFor("tcp", netip.AddrPortFrom(a, 80), lab.Limit), "another pod")
		}
		p.used("after denied packets", before, all(false))
		for i := range 2 {
			p.probes("granted", "tcp", lab.Answered, 80, outsides(1)[i], outsides(4)[i])
			p.probes("granted", "tcp", lab.Answered, 81, outsides(5)[i])
			p.probes("granted", "udp", lab.Answered, 81, outsides(2)[i])
			p.probes("granted", "icmp", lab.Answered, 0, outsides(3)[i])
		}
		p.used("after packets", before, all(true))
		time.Sleep(time.Until(began.Add(2 * time.Second))) // some timeouts are in whole seconds
		for grant, is := range p.listed() {
			if was := before[grant]; is.Timeout > was.Timeout-time.Second {
				t.Errorf("%s lives for %v after packets, %v before", grant, is.Timeout, was.Timeout)
			}
		}

		open := p.dial("client", outsides(1)[0], 80)
		before = p.listed()
		written("written again")
		p.goOn("written again", true, open)
		p.used("after packets of an admitted connection", before, all(false))
		p.dial("client", outsides(4)[1], 80)
		want := all(false)
		want[string(accept.ID)+" "+outsides(4)[1].String()] = true
		p.used("after a connection", before, want)
		p.restart()
		p.apply()
		p.used("after a restart", before, want)
		p.reconcile() // what was not recovered is another program's
		p.probes("after a restart", "tcp", lab.Answered, 80, outsides(1)...)
		p.probes("after a restart", "udp", lab.Answered, 81, outsides(2)...)
		p.probes("after a restart", "icmp", lab.Answered, 0, outsides(3)...)
		p.probes("after a restart", "tcp", lab.Refused, 80, outsides(5)...)
	})
}
