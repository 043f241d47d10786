package enforcer_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

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
				if got := p.Pod("client").ProbeFor("tcp", netip.AddrPortFrom(a, 80), lab.PatienceFor(lab.Refused)); got != lab.Refused {
					t.Errorf("%s is %s", a, got)
				}
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
		tables, err := nft.Open(nft.Bits{Admitted: enforcer.DefaultMark, Candidate: enforcer.DefaultCandidate})
		if err != nil {
			return err
		}
		defer tables.Close()
		return tables.ListEntries([]string{string(id)}, func(_ string, part []timed.Entry) {
			for _, e := range part {
				if e.Addr == a {
					left = e.Timeout
				}
			}
		})
	}))
	return left
}
