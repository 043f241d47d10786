package failsafes

import (
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

const (
	// Keep is how long an entry stays after its source ceased to list it. A day is longer than
	// a night without an administrator, and than the TTLs of records of load balancers.
	Keep = 24 * time.Hour
	// maxGone bounds the entries that stay so; the oldest end first.
	maxGone = 4096
)

// retained keeps the entries that their sources ceased to list. The zero value has none.
type retained struct {
	listed []failsafe.Entry // of the last update, sorted
	gone   []failsafe.Entry // with Gone, by that
}

// update takes over the entries that the sources list, and returns them with the entries that
// are gone. listed is sorted, has each entry once, and is kept. An entry stays for Keep, and
// after that while inUse tells so.
func (r *retained) update(now time.Time, listed []failsafe.Entry, inUse func(*failsafe.Entry) bool) []failsafe.Entry {
	has := func(list []failsafe.Entry, e failsafe.Entry) bool {
		e.Gone = time.Time{}
		_, is := slices.BinarySearchFunc(list, e, failsafe.Compare)
		return is
	}
	r.gone = slices.DeleteFunc(r.gone, func(e failsafe.Entry) bool {
		return has(listed, e) || now.Sub(e.Gone) >= Keep && !inUse(&e)
	})
	for _, e := range r.listed {
		if !has(listed, e) {
			e.Gone = now
			r.gone = append(r.gone, e)
		}
	}
	r.gone = slices.Clip(r.gone[max(0, len(r.gone)-maxGone):])
	r.listed = listed
	return slices.Concat(listed, r.gone)
}

// next returns when the next entry ends; false if no entry does.
func (r *retained) next() (time.Time, bool) {
	if len(r.gone) == 0 {
		return time.Time{}, false
	}
	return r.gone[0].Gone.Add(Keep), true
}

// connections are the remote ends of the host's open TCP connections, read when first asked.
type connections struct {
	read func() ([]netip.AddrPort, error)
	ends []netip.AddrPort // nil before the first reading
	err  error
}

// inUse tells whether the host has a connection to an entry. If connections cannot be read,
// it has one.
func (c *connections) inUse(e *failsafe.Entry) bool {
	if e.Ports.Protocol != policy.TCP || !e.Prefix.IsSingleIP() {
		return false
	}
	if c.ends == nil && c.err == nil {
		c.ends, c.err = c.read()
		c.ends = append(make([]netip.AddrPort, 0, len(c.ends)), c.ends...)
	}
	return c.err != nil || slices.ContainsFunc(c.ends, func(to netip.AddrPort) bool { return e.Contains(policy.TCP, to) })
}
