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
	"github.com/namegate/namegate/proxy/wire"
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

// pointer is a name that an answer points at, and for how many seconds.
type pointer struct {
	name fqdn.Name
	ttl  uint32
}

// pointers returns the names that the answer's records of the type that was asked
// point at, where the question reaches their owner. further is true where the
// question was followed itself: then only another name of the service counts, or
// one answer could lead for ever.
func pointers(q wire.Question, m *dns.Msg, further bool) (out []pointer) {
	switch q.Type {
	case dns.TypeSVCB, dns.TypeHTTPS:
	case dns.TypeSRV, dns.TypeMX:
		if further {
			return nil
		}
	default:
		return nil
	}
	owners, reason := follow(q, m.Answer)
	if reason != "" {
		return nil
	}
	for _, rr := range m.Answer {
		hdr := rr.Header()
		if hdr.Rrtype != q.Type || hdr.Class != dns.ClassINET {
			continue
		}
		at := indexOf(owners, hdr.Name)
		n, err := fqdn.ParseName(targetOf(rr))
		if at < 0 || err != nil || n == "" || n == owners[at].name {
			continue
		}
		out = append(out, pointer{n, min(owners[at].ttl, wire.ValidTTL(hdr.Ttl))})
	}
	return out
}

// targetOf returns the name that a record points at, "." for none.
func targetOf(rr dns.RR) string {
	switch rr := rr.(type) {
	case *dns.SRV:
		return rr.Target // RFC 2782: "." is no service
	case *dns.MX:
		return rr.Mx // RFC 7505: "." takes no mail
	case *dns.SVCB:
		return rr.Target // RFC 9460 §2.5: "." is the owner, or no service
	case *dns.HTTPS:
		return rr.Target
	}
	return "."
}

// lead lets the turn's pod ask for what an allowed answer points at. The name that
// is allowed decides for all of them. An outside name leads nowhere in the cluster:
// those names always resolve, and as its own they would be blocked. A name that was
// followed itself leads no longer than it is followed.
func (t *turn) lead(q wire.Question, allowed fqdn.Name, d policy.Decision, m *dns.Msg) {
	if !t.setup.config.Follow {
		return
	}
	pod, domain := t.view.Pod.PodRef, t.setup.config.ClusterDomain
	most := time.Duration(math.MaxInt64)
	if q.Name != allowed {
		most = t.s.follows.find(pod, q.Name).until
	}
	base := t.base.Sub(t.s.born)
	for _, to := range pointers(q, m, q.Name != allowed) {
		inward := to.name.HasSuffix(domain) && !allowed.HasSuffix(domain)
		if inward || t.view.Decide(to.name).Allowed() {
			continue
		}
		if !t.s.follows.add(pod, to.name, allowed, t.s.elapsed(), min(base+followedFor(d, to.ttl), most)) {
			t.single = false // said again by the same words it would lead nowhere
		}
	}
}

// settled tells whether the turn's question would be planned still as it was, by
// what its pod is led to at the moment now, and until when it is.
func (t *turn) settled(now time.Duration) (until time.Duration, ok bool) {
	if !t.view.Enforced || !t.setup.config.Follow || t.view.Decide(t.q.Name).Allowed() {
		return math.MaxInt64, true
	}
	to := t.s.follows.find(t.view.Pod.PodRef, t.q.Name)
	if to.until <= now {
		return math.MaxInt64, t.plan.via == ""
	}
	return to.until, to.via == t.plan.via
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
