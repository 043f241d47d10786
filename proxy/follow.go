package proxy

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
)

// followsMost bounds the names that one pod is led to at a time.
const followsMost = 256

// follows are the names that the answers to allowed names have pointed their pods
// at: the servers of a service, the exchangers of mail, the other name of an HTTPS
// service. For as long as such an answer holds, its pod may ask for them as for the
// name that led there.
type follows struct {
	epoch atomic.Uint64 // goes up when a pod gets a name that it had not
	mu    sync.RWMutex
	pods  map[policy.PodRef]map[policy.Name]followed
}

type followed struct {
	via   policy.Name   // the allowed name
	until time.Duration // on the server's clock
}

// via returns the allowed name whose answer points the pod at n at the moment now.
func (f *follows) via(p policy.PodRef, n policy.Name, now time.Duration) (policy.Name, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	to, ok := f.pods[p][n]
	return to.via, ok && now < to.until
}

// add notes that the answer to via points the pod at n. At the bound the names
// that are over make room; if none are n is not followed.
func (f *follows) add(p policy.PodRef, n, via policy.Name, now, until time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := f.pods[p]
	old, known := names[n]
	if known && now < old.until && (old.via != via || until <= old.until) {
		return
	}
	if !known && len(names) >= followsMost {
		for n, to := range names {
			if to.until <= now {
				delete(names, n)
			}
		}
		if len(names) >= followsMost {
			return
		}
	}
	if names == nil {
		names = map[policy.Name]followed{}
		if f.pods == nil {
			f.pods = map[policy.PodRef]map[policy.Name]followed{}
		}
		f.pods[p] = names
	}
	names[n] = followed{via, until}
	if !known || old.until <= now {
		f.epoch.Add(1)
	}
}

// sweep forgets the pods that no policy selects any more.
func (f *follows) sweep(snap *policy.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.pods {
		if snap.ViewOf(p) == nil {
			delete(f.pods, p)
		}
	}
}

// pointer is a name that an answer points at, and for how many seconds.
type pointer struct {
	name policy.Name
	ttl  uint32
}

// pointers returns the names that the answer's records of the type that was asked
// point at, where the question reaches their owner. further is true where the
// question was followed itself: then only another name of the service counts, or
// one answer could lead for ever.
func pointers(q Question, m *dns.Msg, further bool) (out []pointer) {
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
		n, err := policy.ParseName(targetOf(rr))
		if at < 0 || err != nil || n == "" || n == owners[at].name {
			continue
		}
		out = append(out, pointer{n, min(owners[at].ttl, plainTTL(hdr.Ttl))})
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
// is allowed decides for all of them.
func (t *turn) lead(q Question, allowed policy.Name, d policy.Decision, m *dns.Msg) {
	if !t.setup.config.Follow {
		return
	}
	base := t.base.Sub(t.s.born)
	for _, to := range pointers(q, m, q.Name != allowed) {
		if t.view.Decide(to.name).Allowed() {
			continue
		}
		t.s.follows.add(t.view.Pod.PodRef, to.name, allowed, t.s.elapsed(), base+followedFor(d, to.ttl))
	}
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
