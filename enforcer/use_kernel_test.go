package enforcer_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// uses returns the uses of grants, by their ports or rule and their address.
func (p *peering) uses() (out map[string]uint64) {
	p.t.Helper()
	fatal.If(p.t, p.Node.Do(func() (err error) { out, err = p.e.Uses(); return err }))
	return out
}

// used asserts which grants packets matched since uses were as before.
func (p *peering) used(when string, before map[string]uint64, want map[string]bool) {
	p.t.Helper()
	now := p.uses()
	for grant, used := range want {
		if n, there := now[grant]; !there || n != before[grant] != used {
			p.t.Errorf("%s: %s has %d uses after %d (found: %v), want more: %v", when, grant, n, before[grant], there, used)
		}
	}
}

// TestGrantsInUse: a grant is used by a packet that it allows, and by none that is denied, of
// another pod, or of a connection that is admitted already.
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
		before := p.uses()
		for i, a := range outsides(1) {
			p.probes("denied", "tcp", lab.Refused, 81, a)
			p.probes("denied", "tcp", lab.Refused, 80, outsides(2)[i], outsides(5)[i])
			if got := p.Pod("other").ProbeFor("tcp", netip.AddrPortFrom(a, 80), lab.Limit); got != lab.Answered {
				t.Errorf("another pod is %s", got)
			}
		}
		p.used("after denied packets", before, all(false))
		for i := range 2 {
			p.probes("granted", "tcp", lab.Answered, 80, outsides(1)[i], outsides(4)[i])
			p.probes("granted", "tcp", lab.Answered, 81, outsides(5)[i])
			p.probes("granted", "udp", lab.Answered, 81, outsides(2)[i])
			p.probes("granted", "icmp", lab.Answered, 0, outsides(3)[i])
		}
		p.used("after packets", before, all(true))

		open := p.dial("client", outsides(1)[0], 80)
		before = p.uses()
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
	})
}
