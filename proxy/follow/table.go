package follow

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
	// MaxNames bounds the followed names of one pod.
	MaxNames = 256
	// MaxLeads bounds the names that lead to one followed name.
	MaxLeads = 8
)

// Table has the followed names of all pods. The zero Table is empty. It may be used at any time.
type Table struct {
	used atomic.Bool // false: there are no names
	mu   sync.RWMutex
	pods map[policy.PodRef]*podNames
}

// podNames are the followed names of one pod.
type podNames struct {
	epoch atomic.Uint64 // goes up when there is a lead that was not, or one less
	names map[fqdn.Name]Leads
	swept *policy.View // by which the leads were looked at last
}

// Leads are the names that led to a followed name, in order.
type Leads []Lead

// Lead is a name that led to a followed name.
type Lead struct {
	policy.Lead               // its Lifetime has no meaning here
	Until       time.Duration // on the caller's clock
}

// compare orders leads to one name.
func (l *Lead) compare(o *Lead) int {
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
func (l Leads) lasting() bool { return len(l) > 0 && l[0].Lasting }

// At returns the names that lead at the moment now, as questions have them, and until when they do.
func (l Leads) At(now time.Duration) (via, aliases []fqdn.Name, until time.Duration) {
	until = math.MaxInt64
	for i := range l {
		switch {
		case l[i].Until <= now:
			continue
		case l[i].Alias:
			aliases = append(aliases, l[i].Name)
		default:
			via = append(via, l[i].Name)
		}
		until = min(until, l[i].Until)
	}
	return via, aliases, until
}

// Until returns until when a name leads, 0 if it does not.
func (l Leads) Until(n fqdn.Name) (last time.Duration) {
	for i := range l {
		if l[i].Name == n {
			last = max(last, l[i].Until)
		}
	}
	return last
}

// Find returns what leads a pod to a name, also where its time is over. The Table changes nothing of it.
func (f *Table) Find(p policy.PodRef, n fqdn.Name) Leads {
	if !f.used.Load() {
		return nil
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if l := f.pods[p]; l != nil {
		return l.names[n]
	}
	return nil
}

// Epoch returns a number that goes up when a name leads the pod to another that did not, or leads no more
// before its time is over.
func (f *Table) Epoch(p policy.PodRef) *atomic.Uint64 {
	f.mu.RLock()
	l := f.pods[p]
	f.mu.RUnlock()
	if l == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		l = f.make(p)
	}
	return &l.epoch
}

// make returns the followed names of a pod, and adds the pod if there are none. The caller holds the lock.
func (f *Table) make(p policy.PodRef) *podNames {
	l := f.pods[p]
	if l == nil {
		if f.pods == nil {
			f.pods = map[policy.PodRef]*podNames{}
		}
		l = &podNames{names: map[fqdn.Name]Leads{}}
		f.pods[p] = l
	}
	return l
}

// Add notes that a name leads the pod to n until its time is over. It returns false if the
// bounds leave no room for it.
func (f *Table) Add(p policy.PodRef, n fqdn.Name, by Lead, now time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used.Store(true)
	return f.make(p).add(n, by, now)
}

func (l *podNames) add(n fqdn.Name, by Lead, now time.Duration) bool {
	if by.Until <= now {
		return true
	}
	old := l.names[n]
	same := func(o Lead) bool { return o.Name == by.Name && o.Alias == by.Alias }
	i := slices.IndexFunc(old, same)
	if i >= 0 && old[i].Until > now {
		if by.Until > old[i].Until || by.Lasting != old[i].Lasting {
			next := slices.Clone(old)
			next[i].Until, next[i].Lasting = max(by.Until, old[i].Until), by.Lasting
			l.put(n, next)
		}
		return true
	}
	// Those whose time is over make room. The lists are shared with readers.
	next := slices.DeleteFunc(slices.Clone(old), func(o Lead) bool { return o.Until <= now })
	if len(next) >= MaxLeads {
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
func (l *podNames) put(n fqdn.Name, all Leads) {
	slices.SortFunc(all, func(a, b Lead) int { return a.compare(&b) })
	l.names[n] = all
}

// room tells whether there is room for another name, and makes it: by names whose time is
// over, and else by the last one.
func (l *podNames) room(n fqdn.Name, lasting bool, now time.Duration) bool {
	if len(l.names) < MaxNames {
		return true
	}
	maps.DeleteFunc(l.names, func(_ fqdn.Name, all Leads) bool {
		return !slices.ContainsFunc(all, func(o Lead) bool { return o.Until > now })
	})
	if len(l.names) < MaxNames {
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

// Sweep removes the pods that no policy selects any more, and the names followed from a name
// that no rule covers any more.
func (f *Table) Sweep(snap *policy.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := 0
	defer func() { f.used.Store(names > 0) }()
	for p, l := range f.pods {
		v := snap.ViewOf(p)
		if v == nil {
			delete(f.pods, p)
			l.epoch.Add(1)
			continue
		}
		if l.swept == v {
			names += len(l.names)
			continue
		}
		l.swept = v
		for n, all := range l.names {
			next := make(Leads, 0, len(all))
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
		names += len(l.names)
	}
}
