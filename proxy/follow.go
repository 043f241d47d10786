package proxy

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/answer"
)

// maxFollowedNames bounds the followed names of one pod.
const maxFollowedNames = 256

// followTable has the followed names: names in the SRV, MX, SVCB and HTTPS records of the
// answers to names that a rule covers. For the time of such an answer, its pod may query a
// followed name as it may query that name.
type followTable struct {
	mu   sync.RWMutex
	pods map[policy.PodRef]*followedNames
}

// followedNames are the followed names of one pod.
type followedNames struct {
	epoch atomic.Uint64 // goes up when there is a name that was not, or one less
	names map[fqdn.Name]followed
}

type followed struct {
	via   fqdn.Name     // the name that a rule covers
	until time.Duration // on the server's clock
}

// via returns the name whose answer points the pod at n at the moment now.
func (f *followTable) via(p policy.PodRef, n fqdn.Name, now time.Duration) (fqdn.Name, bool) {
	to := f.find(p, n)
	return to.via, now < to.until
}

// find returns the entry of a pod's followed name. Without one, until is 0.
func (f *followTable) find(p policy.PodRef, n fqdn.Name) followed {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if l := f.pods[p]; l != nil {
		return l.names[n]
	}
	return followed{}
}

// of returns the followed names of a pod, and adds the pod if there are none.
func (f *followTable) of(p policy.PodRef) *followedNames {
	f.mu.RLock()
	l := f.pods[p]
	f.mu.RUnlock()
	if l != nil {
		return l
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.make(p)
}

// make is of. The caller holds the lock.
func (f *followTable) make(p policy.PodRef) *followedNames {
	l := f.pods[p]
	if l == nil {
		if f.pods == nil {
			f.pods = map[policy.PodRef]*followedNames{}
		}
		l = &followedNames{names: map[fqdn.Name]followed{}}
		f.pods[p] = l
	}
	return l
}

// add notes that the pod may query n until then, because the answer to via points at n. It
// returns false if n is followed from another name already, and at the limit of names. At
// the limit, names whose time is over are removed first.
func (f *followTable) add(p policy.PodRef, n, via fqdn.Name, now, until time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.make(p)
	old, known := l.names[n]
	if known && now < old.until && (old.via != via || until <= old.until) {
		return until <= old.until
	}
	if !known && len(l.names) >= maxFollowedNames {
		maps.DeleteFunc(l.names, func(_ fqdn.Name, to followed) bool { return to.until <= now })
		if len(l.names) >= maxFollowedNames {
			return false
		}
	}
	l.names[n] = followed{via, until}
	if !known || old.until <= now {
		l.epoch.Add(1)
	}
	return true
}

// sweep removes the pods that no policy selects any more, and the names followed from a name
// that no rule covers any more: an answer to another name may point at them.
func (f *followTable) sweep(snap *policy.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, l := range f.pods {
		v := snap.ViewOf(p)
		if v == nil {
			delete(f.pods, p)
			l.epoch.Add(1)
			continue
		}
		names := len(l.names)
		maps.DeleteFunc(l.names, func(_ fqdn.Name, to followed) bool { return !v.Decide(to.via).Counts() })
		if len(l.names) < names {
			l.epoch.Add(1)
		}
	}
}

// followedFrom returns the name by which the query's pod may query n now.
func (q *query) followedFrom(n fqdn.Name) (fqdn.Name, bool) {
	if !q.setup.config.Follow || q.question.Class != dns.ClassINET {
		return "", false
	}
	return q.s.followed.via(q.client.view.Pod.PodRef, n, q.s.elapsed())
}

// follow adds the names that an answer points at to the followed names of the query's pod, if
// it counts for a rule. The name that the rule covers decides for all of them. From a name
// outside the cluster no name inside it is followed: such names always resolve, and as followed
// names they would be blocked. From a followed name, names are followed for at most its own time.
func (q *query) follow() {
	if !q.setup.config.Follow || q.msg == nil || !q.decision.Counts() { // an answer that is read in place has addresses alone
		return
	}
	v, domain, by := q.client.view, q.setup.config.ClusterDomain, q.decision.CountsFor()
	pod, most := v.Pod.PodRef, time.Duration(math.MaxInt64)
	further := by == q.decision.Query.Via && by != q.asks.Name
	if further {
		most = q.s.followed.find(pod, q.asks.Name).until
	}
	base := q.base.Sub(q.s.started)
	for _, to := range answer.Pointers(q.asks.Question, q.msg, further) {
		inward := to.Name.HasSuffix(domain) && !by.HasSuffix(domain)
		if inward || !v.OrderInForce() && v.Decide(to.Name).Allowed() {
			continue
		}
		if !q.s.followed.add(pod, to.Name, by, q.s.elapsed(), min(base+followedFor(&q.decision, to.TTL), most)) {
			q.single = false // the same reply again would add no name
		}
	}
}

// settled tells whether the question would be planned still as it was, by the names that
// its pod is led to at the moment now, and until when it is.
func (q *query) settled(now time.Duration) (until time.Duration, ok bool) {
	v := q.client.view
	if !v.InForce() || !q.setup.config.Follow || !v.OrderInForce() && v.Decide(q.question.Name).Allowed() {
		return math.MaxInt64, true
	}
	to := q.s.followed.find(v.Pod.PodRef, q.question.Name)
	if to.until <= now {
		return math.MaxInt64, q.plan.via == ""
	}
	return to.until, to.via == q.plan.via
}

// followedFor is for how long a name is followed: its TTL within the bounds of the policies
// that allow the original name, or if none does of those that cover it.
func followedFor(d *policy.Decision, ttl uint32) (most time.Duration) {
	allowed := d.Allowed()
	for _, m := range d.Matches {
		if !m.Audit && m.Accepts() == allowed {
			most = max(most, m.TTL.Lifetime(ttl)-m.TTL.Grace)
		}
	}
	return most
}
