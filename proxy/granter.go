package proxy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/wire"
)

// Granter opens answered addresses in the kernel.
type Granter interface {
	// Grant returns nil only once the kernel acknowledged every address of every grant.
	// The grants slice must not be kept or changed. An error, or ctx ending first, means that the answer must not leave.
	Grant(ctx context.Context, grants []policy.Grant) error
}

// Coverer is what a Granter may be besides, so that replies can be given again
// without asking the kernel.
type Coverer interface {
	// Covered tells whether the kernel has acknowledged every address of every
	// grant until its deadline or later. It neither blocks nor allocates; false
	// costs no more than a call of Grant.
	Covered(grants []policy.Grant) bool
	// Epoch is another number as soon as something that was covered may not be any
	// more: while it is the same as before a Covered that said true, that still holds.
	Epoch() uint64
}

// Opener is what a Granter may be besides, so that nobody need wait for the kernel.
type Opener interface {
	// GrantThen is Grant whose result is told to then: once, by any goroutine, perhaps
	// before GrantThen returns. It does not block. The grants are lent until then.
	GrantThen(grants []policy.Grant, then Then)
}

// Then is who is told what became of a GrantThen. It must not block. more: others
// are told at once after it, by the same goroutine.
type Then = interface{ Granted(err error, more bool) }

// nothingCovered is the Coverer of a Granter that is none.
type nothingCovered struct{}

func (nothingCovered) Covered([]policy.Grant) bool { return false }
func (nothingCovered) Epoch() uint64               { return 0 }

// patient is the Opener of a Granter that is none: a goroutine waits.
type patient struct{ s *Server }

func (p patient) GrantThen(grants []policy.Grant, then Then) {
	p.s.crew.do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), p.s.setup.Load().config.GrantTimeout)
		defer cancel()
		then.Granted(p.s.program(ctx, grants), false)
	})
}

// grantsMost bounds the calls of the Granter that are under way, those that
// outlived the query they were for included.
const grantsMost = 1024

var errGranterFault = errors.New("a fault on the kernel's side")

// program calls the Granter and returns when ctx ends at the latest: a kernel
// that hangs must not hang the proxy, whatever the Granter makes of its ctx.
func (s *Server) program(ctx context.Context, grants []policy.Grant) error {
	select {
	case s.granting <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("too many grants wait for the kernel: %w", ctx.Err())
	}
	done := make(chan error, 1)
	s.crew.do(func() {
		err := errGranterFault
		defer func() {
			if r := recover(); r != nil {
				s.fault("a grant", r)
			}
			<-s.granting
			done <- err
		}()
		s.step("grant")
		err = s.granter.Grant(ctx, grants)
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// grantsOf returns what the decision opens for the pod with the addresses of an
// answer that came now, and for each address what the log says of it. An
// address that the decision does not open has no opening.
func grantsOf(v *policy.View, n fqdn.Name, d policy.Decision, addrs []wire.Address, now time.Time) ([]policy.Grant, [][]audit.Opened) {
	var grants []policy.Grant
	opened := make([][]audit.Opened, len(addrs))
	for i, a := range addrs {
		if opened[i] != nil {
			continue
		}
		// Nearly always all addresses share one TTL, and so one grant a port set.
		same := addrs[i:]
		all := make([]int, 0, len(same))
		for j := range same {
			if same[j].TTL == a.TTL {
				all = append(all, i+j)
			}
		}
		for _, o := range d.Openings(a.TTL) {
			if o.Lifetime <= 0 {
				continue
			}
			g := policy.Grant{Pod: v.Pod.PodRef, Name: n, Ports: o.Ports, Deadline: now.Add(o.Lifetime), By: o.By, View: v}
			for _, j := range all {
				g.Addrs = append(g.Addrs, addrs[j].Addr)
				opened[j] = append(opened[j], audit.Opened{Ports: o.Ports, Until: g.Deadline})
			}
			grants = append(grants, g)
		}
	}
	return grants, opened
}

// longestTTL returns the TTL in seconds that a pod may be told at most, so that
// every port set that the decision opens is open for at least as long.
func longestTTL(d policy.Decision) uint32 {
	least := time.Duration(math.MaxInt64)
	var longest map[policy.PortSet]time.Duration // of one match there is no need
	for _, m := range d.Matches {
		switch {
		case m.Audit:
		case len(d.Matches) == 1:
			least = m.TTL.Max
		default:
			if longest == nil {
				longest = map[policy.PortSet]time.Duration{}
			}
			longest[m.Ports] = max(longest[m.Ports], m.TTL.Max)
		}
	}
	for _, t := range longest {
		least = min(least, t)
	}
	return uint32(min(max(least/time.Second, 0), wire.MaxTTL))
}
