package proxy

import (
	"math"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/follow"
)

// followedFrom returns the names by which the query's pod may query n now.
func (q *query) followedFrom(n fqdn.Name) (via, aliases []fqdn.Name) {
	if q.question.Class != dns.ClassINET {
		return nil, nil
	}
	return q.s.LedBy(q.client.view.Pod.PodRef, n)
}

// LedBy returns the names whose answers lead a pod to n now, see policy.Query.
func (s *Server) LedBy(p policy.PodRef, n fqdn.Name) (via, aliases []fqdn.Name) {
	if s.setup.Load().config.Follow {
		if led := s.followed.Find(p, n); led != nil { // nearly never: no look at the clock
			via, aliases, _ = led.At(s.elapsed())
		}
	}
	return via, aliases
}

// followed tells whether an answer led the pod to the question.
func (p *plan) followed() bool { return len(p.decision.Query.Via) > 0 }

// follow adds the names that an answer points at to the followed names of the query's pod, for
// each name for which the answer counts. From a name outside the cluster no name inside it is
// followed: such names always resolve, and as followed names they would be blocked. From a
// followed name, names are followed for at most its own time. It returns false where the bounds
// leave no room for a name that a rule denies or passes.
func (q *query) follow() (kept bool) {
	if !q.setup.config.Follow || q.msg == nil || !q.decision.Counts() { // an answer that is read in place has addresses alone
		return true
	}
	pod, domain := q.client.view.Pod.PodRef, q.setup.config.ClusterDomain
	base, now := q.base.Sub(q.s.started), q.s.elapsed()
	led := q.s.followed.Find(pod, q.asks.Name)
	kept = true
	for _, further := range []bool{false, true} {
		for _, to := range answer.Pointers(q.asks.Question, q.msg, further) {
			for _, by := range q.decision.Leads(to.Name, to.TTL) {
				until := base + by.Lifetime
				// The owners of names inside the cluster choose no addresses outside.
				by.Alias = by.Alias || by.Name.HasSuffix(domain) && !to.Name.HasSuffix(domain)
				switch {
				case q.own(by.Name) == further || to.Name.HasSuffix(domain) && !by.Name.HasSuffix(domain):
					continue
				case further:
					until = min(until, led.Until(by.Name))
				}
				if !q.s.followed.Add(pod, to.Name, follow.Lead{Lead: by, Until: until}, now) {
					q.single = false // the same reply again would add no name
					kept = kept && !by.Lasting
				}
			}
		}
	}
	return kept
}

// own tells whether a name is of the question or of its answer's chain. Others led to it.
func (q *query) own(n fqdn.Name) bool {
	return n == q.asks.Name || n == q.question.Name || slices.Contains(q.rec.Chain, n) && !slices.Contains(q.decision.Query.Via, n)
}

// settled tells whether the question would be planned still as it was, by the names that
// its pod is led to at the moment now, and until when it is.
func (q *query) settled(now time.Duration) (until time.Duration, ok bool) {
	v := q.client.view
	if !v.InForce() || !q.setup.config.Follow {
		return math.MaxInt64, true
	}
	via, aliases, until := q.s.followed.Find(v.Pod.PodRef, q.question.Name).At(now)
	planned := &q.plan.decision.Query
	return until, slices.Equal(via, planned.Via) && slices.Equal(aliases, planned.Aliases)
}
