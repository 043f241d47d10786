package proxy

import (
	"context"
	"errors"
	"fmt"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/audit"
)

// warmAtOnce bounds how many questions Warm has under way: it must not take the
// upstream from pods that ask.
const warmAtOnce = 16

// Warm asks for the exact names of views, A and AAAA, and grants what the
// answers say, as if the pod had asked: a pod that was answered by others, before
// it was selected or while no agent served, keeps the names it has in use. It
// returns when all are granted, with the failures joined, or when ctx has ended;
// what is under way then goes on by itself.
func (s *Server) Warm(ctx context.Context, views []*policy.View) error {
	snap := s.snapshot.Load()
	results := make(chan error)
	places := make(chan struct{}, warmAtOnce)
	asked := 0
	for _, v := range views {
		if !v.Enforced {
			continue
		}
		asked += 2 * len(v.ExactNames())
		go func() {
			for _, n := range v.ExactNames() {
				for _, typ := range []uint16{dns.TypeA, dns.TypeAAAA} {
					select {
					case <-ctx.Done():
						return
					case places <- struct{}{}:
					}
					go func() {
						err := s.warm(v, snap, n, typ)
						<-places
						select {
						case results <- err:
						case <-ctx.Done():
						}
					}()
				}
			}
		}()
	}
	var failed error
	for range asked {
		select {
		case err := <-results:
			failed = errors.Join(failed, err)
		case <-ctx.Done():
			return errors.Join(failed, ctx.Err())
		}
	}
	return failed
}

// warm takes one question through decision, upstream, check and grant.
func (s *Server) warm(v *policy.View, snap *policy.Snapshot, n policy.Name, typ uint16) (err error) {
	defer func() {
		if r := recover(); r != nil {
			s.fault("the resolution of an exact name", r)
			err = fmt.Errorf("resolve %s for pod %s: a fault of the proxy, see its log", n, v.Pod)
		}
	}()
	t := s.turnFor(v, snap, ask{Question: Question{Name: n, Type: typ, Class: dns.ClassINET}, recurse: true})
	t.run()
	if t.rec.Verdict == audit.Failed {
		return errors.New("resolve " + n.String() + " for pod " + v.Pod.String() + ": " + t.rec.Error)
	}
	return nil
}

// turnFor is the turn of a question that nobody sent.
func (s *Server) turnFor(v *policy.View, snap *policy.Snapshot, a ask) *turn {
	query := new(dns.Msg)
	query.SetQuestion(presentation(a.Name), a.Type)
	query.RecursionDesired, query.CheckingDisabled, query.AuthenticatedData = a.recurse, a.check, a.authent
	if a.dnssec {
		query.SetEdns0(advertised, true)
	}
	return &turn{s: s, setup: s.setup.Load(), view: v, snap: snap, query: query, q: a.Question}
}

// regrant has the pod granted what its question's answer says now, and logs that.
func (s *Server) regrant(v *policy.View, snap *policy.Snapshot, a ask) {
	started := s.now()
	t := s.turnFor(v, snap, a)
	t.rec = audit.Record{Pod: v.Pod.PodRef, Workload: v.Workload, Name: a.Name, Type: a.Type, Class: a.Class}
	if len(v.Pod.IPs) > 0 {
		t.rec.Address = v.Pod.IPs[0]
	}
	t.quiet = true
	r := t.run()
	t.rec.Cache = audit.CachePrefetch
	t.finish(r, started)
}
