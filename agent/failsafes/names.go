package failsafes

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/agent/failsafes/hostfiles"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

const (
	// minTTL and maxTTL bound how soon a name is asked again.
	minTTL, maxTTL = 5 * time.Second, 5 * time.Minute
	// timeTTL is how soon a name of a time server is asked again: daemons ask once, and a pool
	// has other addresses in each answer.
	timeTTL = time.Hour
	// retryTTL is how soon a name is asked again after an error.
	retryTTL = 15 * time.Second
	// maxAddrs bounds the addresses of a name.
	maxAddrs = 64
)

// name is the state of a name.
type name struct {
	addrs    []netip.Addr // of the last answer, and learned since; sorted
	due      time.Time    // of the next lookup; zero: at once
	asked    bool         // a lookup is under way
	tried    bool         // a lookup has ended
	answered bool         // there were addresses
	failing  error        // the first error since the last answer
	slow     bool         // a time server's
	// earlier: no lookup had an answer yet. An earlier agent found the addresses, or this one did before the
	// targets lacked the name for a while.
	earlier bool
}

// names are the states of the names of targets.
type names map[string]*name

// sync takes over the targets with names. New ones begin with their addresses in earlier, which gets those of
// names that go, up to maxNames.
func (n names) sync(targets []failsafe.Target, earlier map[string][]netip.Addr) {
	slow := map[string]bool{}
	for _, t := range targets {
		before, there := slow[t.Host]
		slow[t.Host] = t.Reason == hostfiles.ReasonTime && (before || !there)
	}
	for host, s := range n {
		if _, there := slow[host]; there {
			continue
		}
		if _, there := earlier[host]; len(s.addrs) > 0 && (there || len(earlier) < maxNames) {
			earlier[host] = s.addrs
		}
		delete(n, host)
	}
	for host, slow := range slow {
		if n[host] == nil {
			found := bounded(earlier[host])
			n[host] = &name{addrs: found, answered: len(found) > 0, earlier: len(found) > 0}
		}
		n[host].slow = slow
	}
}

// ask returns the names that are due. Each has to be answered.
func (n names) ask(now time.Time) (hosts []string) {
	for host, s := range n {
		if !s.asked && !now.Before(s.due) {
			s.asked = true
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// answer takes over the result of a lookup. The last addresses stay after an error.
func (n names) answer(now time.Time, host string, addrs []netip.Addr, ttl time.Duration, err error) {
	s := n[host]
	if s == nil {
		return // no target has it any more
	}
	s.asked, s.tried = false, true
	if err == nil && len(addrs) == 0 {
		err = ErrNoAddresses
	}
	if err != nil {
		s.due = now.Add(retryTTL)
		if s.failing == nil || !s.answered && errors.Is(s.failing, ErrNoAddresses) != errors.Is(err, ErrNoAddresses) {
			s.failing = err
		}
		return
	}
	ttl = min(max(ttl, minTTL), maxTTL)
	if s.slow {
		ttl = timeTTL
	}
	s.due, s.failing, s.answered, s.earlier = now.Add(ttl), nil, true, false
	s.addrs = bounded(addrs)
}

// learn adds addresses to those of the last answer, and tells whether there were new ones. They come first:
// a program is about to dial them.
func (n names) learn(host string, addrs []netip.Addr) bool {
	s := n[host]
	if s == nil {
		return false
	}
	all := bounded(addrs)
	for _, a := range s.addrs {
		if len(all) < maxAddrs && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	news := !slices.Equal(all, s.addrs)
	s.addrs, s.answered = all, s.answered || len(all) > 0
	return news
}

func bounded(addrs []netip.Addr) []netip.Addr {
	out := policy.CleanAddrs(addrs)
	slices.SortFunc(out, netip.Addr.Compare)
	return out[:min(len(out), maxAddrs)]
}

// complete tells whether every name was looked up once.
func (n names) complete() bool {
	for _, s := range n {
		if !s.tried && (!s.answered || s.earlier) {
			return false
		}
	}
	return true
}

// next returns when the next name is due; false if none is.
func (n names) next() (at time.Time, ok bool) {
	for _, s := range n {
		if !s.asked && (!ok || s.due.Before(at)) {
			at, ok = s.due, true
		}
	}
	return at, ok
}

// entries returns the entries of a target with a name.
func (n names) entries(t *failsafe.Target) []failsafe.Entry { return entriesAt(t, n[t.Host].addrs) }

// entriesAt returns the entries of a target whose name has addresses.
func entriesAt(t *failsafe.Target, addrs []netip.Addr) (out []failsafe.Entry) {
	t2 := *t
	t2.Source = fmt.Sprintf("%s, name %s", t.Source, t.Host)
	for _, a := range addrs {
		out = append(out, t2.At(a))
	}
	return out
}

// problem returns the problem of a target whose name has an error. A time server's name that
// does not exist is none: there is nothing to reach.
func (n names) problem(t *failsafe.Target) (p problem, ok bool) {
	s := n[t.Host]
	if s.failing == nil || t.Reason == hostfiles.ReasonTime && errors.Is(s.failing, ErrNoAddresses) {
		return p, false
	}
	message := fmt.Sprintf("the name %s (%s) cannot be resolved: %v", t.Host, t.Reason, s.failing)
	if s.earlier {
		message += "; its addresses are the last ones that were found on this node"
	}
	message += fmt.Sprintf("; write `failsafe ADDRESS:%d` with its addresses in the Corefile", t.Ports.First)
	f := failsafe.Finding{Source: t.Source, Message: message, Failed: true, Stale: s.answered, Port: t.Ports.First}
	return problem{f, t.Ports.Protocol, []uint16{t.Ports.First}}, true
}
