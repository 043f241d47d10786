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

// followsMost bounds the names that one pod is led to at a time.
const followsMost = 256

// follows are the names that the answers to allowed names have pointed their pods
// at: the servers of a service, the exchangers of mail, the other name of an HTTPS
// service. For as long as such an answer holds, its pod may ask for them as for the
// name that led there.
type follows struct {
	mu   sync.RWMutex
	pods map[policy.PodRef]*led
}

// led are the names that one pod is led to.
type led struct {
	epoch atomic.Uint64 // goes up when there is a name that was not, or one less
	names map[fqdn.Name]followed
}

type followed struct {
	via   fqdn.Name     // the allowed name
	until time.Duration // on the server's clock
}

// via returns the allowed name whose answer points the pod at n at the moment now.
func (f *follows) via(p policy.PodRef, n fqdn.Name, now time.Duration) (fqdn.Name, bool) {
	to := f.find(p, n)
	return to.via, now < to.until
}

// find returns how the pod is led to n, until 0 if it was not.
func (f *follows) find(p policy.PodRef, n fqdn.Name) followed {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if l := f.pods[p]; l != nil {
		return l.names[n]
	}
	return followed{}
}

// of returns what the pod is led to, as yet perhaps nothing.
func (f *follows) of(p policy.PodRef) *led {
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

// make is of for who holds the lock.
func (f *follows) make(p policy.PodRef) *led {
	l := f.pods[p]
	if l == nil {
		if f.pods == nil {
			f.pods = map[policy.PodRef]*led{}
		}
		l = &led{names: map[fqdn.Name]followed{}}
		f.pods[p] = l
	}
	return l
}

// add notes that the answer to via points the pod at n until then, and tells
// whether it is led there for so long. It is not where another name leads there
// already, nor at the bound, where the names that are over make room first.
func (f *follows) add(p policy.PodRef, n, via fqdn.Name, now, until time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.make(p)
	old, known := l.names[n]
	if known && now < old.until && (old.via != via || until <= old.until) {
		return until <= old.until
	}
	if !known && len(l.names) >= followsMost {
		maps.DeleteFunc(l.names, func(_ fqdn.Name, to followed) bool { return to.until <= now })
		if len(l.names) >= followsMost {
			return false
		}
	}
	l.names[n] = followed{via, until}
	if !known || old.until <= now {
		l.epoch.Add(1)
	}
	return true
}

// sweep forgets the pods that no policy selects any more, and the names to which
// a name led that is not allowed any more: another may lead there.
func (f *follows) sweep(snap *policy.Snapshot) {
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
		maps.DeleteFunc(l.names, func(_ fqdn.Name, to followed) bool { return !v.Decide(to.via).Allowed() })
		if len(l.names) < names {
			l.epoch.Add(1)
		}
	}
}

// led returns the allowed name by which the query's pod is led to another now.
func (q *query) led(n fqdn.Name) (fqdn.Name, bool) {
	if !q.setup.config.Follow || q.question.Class != dns.ClassINET {
		return "", false
	}
	return q.s.follows.via(q.client.view.Pod.PodRef, n, q.s.elapsed())
}

// lead lets the query's pod ask for the names that an allowed answer points at. The name
// that is allowed decides for all of them. An outside name leads nowhere in the cluster:
// those names always resolve, and as its own they would be blocked. A name that was
// followed itself leads no longer than it is followed.
func (q *query) lead() {
	if !q.setup.config.Follow || q.msg == nil { // an answer that is read in place has addresses alone
		return
	}
	v, domain, allowed := q.client.view, q.setup.config.ClusterDomain, q.allowed
	pod, most := v.Pod.PodRef, time.Duration(math.MaxInt64)
	if q.asks.Name != allowed {
		most = q.s.follows.find(pod, q.asks.Name).until
	}
	base := q.base.Sub(q.s.born)
	for _, to := range answer.Pointers(q.asks.Question, q.msg, q.asks.Name != allowed) {
		inward := to.Name.HasSuffix(domain) && !allowed.HasSuffix(domain)
		if inward || v.Decide(to.Name).Allowed() {
			continue
		}
		if !q.s.follows.add(pod, to.Name, allowed, q.s.elapsed(), min(base+followedFor(q.decision, to.TTL), most)) {
			q.single = false // the same reply again would lead nowhere
		}
	}
}

// settled tells whether the question would be planned still as it was, by the names that
// its pod is led to at the moment now, and until when it is.
func (q *query) settled(now time.Duration) (until time.Duration, ok bool) {
	v := q.client.view
	if !v.Enforced || !q.setup.config.Follow || v.Decide(q.question.Name).Allowed() {
		return math.MaxInt64, true
	}
	to := q.s.follows.find(v.Pod.PodRef, q.question.Name)
	if to.until <= now {
		return math.MaxInt64, q.plan.via == ""
	}
	return to.until, to.via == q.plan.via
}

// followedFor is for how long a name is followed: its TTL within the bounds of the
// policies that allow the one that led to it.
func followedFor(d policy.Decision, ttl uint32) (most time.Duration) {
	for _, m := range d.Matches {
		if !m.Audit {
			most = max(most, m.TTL.Lifetime(ttl)-m.TTL.Grace)
		}
	}
	return most
}
