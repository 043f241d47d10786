package proxy

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

const (
	// maxFollowedNames bounds the followed names of one pod.
	maxFollowedNames = 256
	// maxLeads bounds the names that lead to one followed name.
	maxLeads = 8
)

// followTable has the followed names: names in the SRV, MX, SVCB and HTTPS records of the
// answers to names that a rule covers. For the time of such an answer, a followed name counts
// for its pod as each of the names that led to it.
//
// Where there are more than the bounds allow, those stay that come first: by names that rules
// deny or pass which do not cover the followed name by themselves, then the others, each in the
// order of names. One of the first is never removed for another.
type followTable struct {
	mu   sync.RWMutex
	pods map[policy.PodRef]*followedNames
}

// followedNames are the followed names of one pod.
type followedNames struct {
	epoch atomic.Uint64 // goes up when there is a lead that was not, or one less
	names map[fqdn.Name]leads
	swept *policy.View // by which the leads were looked at last
}

// leads are the names that led to a followed name, in order.
type leads []lead

type lead struct {
	policy.Lead               // its Lifetime has no meaning here
	until       time.Duration // on the server's clock
}

// compare orders leads to one name.
func (l *lead) compare(o *lead) int {
	if l.Lasting != o.Lasting {
		return lastingFirst(l.Lasting)
	}
	if by := strings.Compare(string(l.Name), string(o.Name)); by != 0 || l.Alias == o.Alias {
		return by
	}
	return lastingFirst(o.Alias)
}

func lastingFirst(lasting bool) int {
	if lasting {
		return -1
	}
	return 1
}

// lasting tells whether one of them is Lasting.
func (l leads) lasting() bool { return len(l) > 0 && l[0].Lasting }

// at returns those that lead at the moment now, as questions have them, and until when they do.
func (l leads) at(now time.Duration) (via, aliases []fqdn.Name, until time.Duration) {
	until = math.MaxInt64
	for i := range l {
		switch {
		case l[i].until <= now:
			continue
		case l[i].Alias:
			aliases = append(aliases, l[i].Name)
		default:
			via = append(via, l[i].Name)
		}
		until = min(until, l[i].until)
	}
	return via, aliases, until
}

// until returns until when a name leads, 0 if it does not.
func (l leads) until(n fqdn.Name) (last time.Duration) {
	for i := range l {
		if l[i].Name == n {
			last = max(last, l[i].until)
		}
	}
	return last
}

// find returns what leads a pod to a name. Nothing of it is changed.
func (f *followTable) find(p policy.PodRef, n fqdn.Name) leads {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if l := f.pods[p]; l != nil {
		return l.names[n]
	}
	return nil
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
		l = &followedNames{names: map[fqdn.Name]leads{}}
		f.pods[p] = l
	}
	return l
}

// add notes that a name leads the pod to n until its time is over. It returns false if the
// bounds leave no room for it.
func (f *followTable) add(p policy.PodRef, n fqdn.Name, by lead, now time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.make(p).add(n, by, now)
}

func (l *followedNames) add(n fqdn.Name, by lead, now time.Duration) bool {
	if by.until <= now {
		return true
	}
	old := l.names[n]
	same := func(o lead) bool { return o.Name == by.Name && o.Alias == by.Alias }
	i := slices.IndexFunc(old, same)
	if i >= 0 && old[i].until > now {
		if by.until > old[i].until || by.Lasting != old[i].Lasting {
			next := slices.Clone(old)
			next[i].until, next[i].Lasting = max(by.until, old[i].until), by.Lasting
			l.put(n, next)
		}
		return true
	}
	// Those whose time is over make room. The lists are shared with readers.
	next := slices.DeleteFunc(slices.Clone(old), func(o lead) bool { return o.until <= now })
	if len(next) >= maxLeads {
		last := &next[len(next)-1]
		if last.Lasting || by.compare(last) > 0 {
			return false
		}
		next = next[:len(next)-1]
	}
	if old == nil && !l.room(n, by.Lasting, now) {
		return false
	}
	l.put(n, append(next, by))
	l.epoch.Add(1)
	return true
}

// put has the leads of a name in order.
func (l *followedNames) put(n fqdn.Name, all leads) {
	slices.SortFunc(all, func(a, b lead) int { return a.compare(&b) })
	l.names[n] = all
}

// room tells whether there is room for another name, and makes it: by names whose time is
// over, and else by the last one.
func (l *followedNames) room(n fqdn.Name, lasting bool, now time.Duration) bool {
	if len(l.names) < maxFollowedNames {
		return true
	}
	maps.DeleteFunc(l.names, func(_ fqdn.Name, all leads) bool {
		return !slices.ContainsFunc(all, func(o lead) bool { return o.until > now })
	})
	if len(l.names) < maxFollowedNames {
		return true
	}
	last := n
	for other, all := range l.names {
		if !all.lasting() && (lasting && last == n || other > last) {
			last = other
		}
	}
	delete(l.names, last)
	return last != n
}

// sweep removes the pods that no policy selects any more, and the names followed from a name
// that no rule covers any more.
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
		if l.swept == v {
			continue
		}
		l.swept = v
		for n, all := range l.names {
			next := make(leads, 0, len(all))
			for _, by := range all {
				var stays bool
				if stays, by.Lasting = v.LeadStays(by.Lead, n); stays {
					next = append(next, by)
				}
			}
			if l.put(n, next); len(next) < len(all) {
				l.epoch.Add(1)
			}
			if len(next) == 0 {
				delete(l.names, n)
			}
		}
	}
}
