package enforcer

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// orphanTime is how long an orphan is closed at most where no interface is its alone.
const orphanTime = 10 * time.Minute

// orphans are the isolated addresses whose pods have no object any more. The processes of such a
// pod may run on, as after a force deletion, so its address stays closed.
type orphans struct {
	since map[netip.Addr]time.Time
	// homes are the last known homes of the addresses of all pods of this node, nowhere if the
	// interface is gone.
	homes map[netip.Addr]plan.Home
	// links are the interfaces of the last look.
	links map[string]int
}

// withOrphans returns a snapshot with the orphans that stay closed.
func (e *Enforcer) withOrphans(s *policy.Snapshot) *policy.Snapshot {
	since := e.orphans.since
	e.orphans.since = map[netip.Addr]time.Time{}
	closed := map[policy.PodRef][]netip.Addr{}
	looked := false
	for a, of := range e.isolated() {
		if _, has := s.Pod(a); has {
			continue
		}
		if !looked {
			e.standing() // notes which homes are gone
			looked = true
		}
		began, known := since[a]
		if !known {
			began = e.now()
		}
		if !e.isOrphan(a, of, began) {
			continue
		}
		of = of.Orphan()
		if !known {
			e.log.Info("a pod has no object any more: its address stays closed until its interface is gone or another pod has the address", "pod", of, "address", a)
		}
		if h := e.orphans.homes[a]; h.Pod.Orphan() == of {
			h.Pod = of
			e.orphans.homes[a], e.homes[a] = h, h
		}
		e.orphans.since[a] = began
		closed[of] = append(closed[of], a)
	}
	var pods []policy.Pod
	for of, addrs := range closed {
		slices.SortFunc(addrs, netip.Addr.Compare)
		pods = append(pods, policy.Pod{PodRef: of, IPs: addrs})
	}
	return s.WithOrphans(pods, e.coming, haveIngress(e.plan) || len(e.recovered.ingress) > 0)
}

// isolated returns the isolated addresses with their pods. Before the first Commit they are those
// that an earlier agent isolated, of which it left the digests of the pods alone. An address without
// a pod and a home is another program's, where the tables of the earlier agent tell of pods.
func (e *Enforcer) isolated() map[netip.Addr]policy.PodRef {
	out := map[netip.Addr]policy.PodRef{}
	was := maps.Clone(e.recovered.isolated)
	if was != nil {
		maps.Copy(was, e.recovered.ingress)
	}
	for a := range was {
		if len(e.recovered.Subjects) > 0 && e.recovered.Subjects[a] == "" && e.recovered.homes[a].Iface == "" {
			continue
		}
		out[a] = policy.PodRef{Namespace: "unknown", Name: cmp.Or(e.recovered.Subjects[a], a.String())}
		if _, known := e.orphans.homes[a]; !known && e.recovered.homes[a].Iface != "" {
			e.orphans.homes[a] = plan.Home{Home: e.recovered.homes[a], Pod: out[a], Evidence: link.Heard}
		}
	}
	for ref, p := range e.plan {
		if p.Isolated || p.Ingress != nil {
			for _, a := range p.Addrs {
				out[a] = ref
			}
		}
	}
	return out
}

// isOrphan tells whether the address of a pod without an object stays closed.
func (e *Enforcer) isOrphan(a netip.Addr, of policy.PodRef, began time.Time) bool {
	if h, known := e.orphans.homes[a]; known && h.Pod.Orphan() == of.Orphan() {
		switch {
		case h.Nowhere():
			return false
		case h.Bridged() || !e.shared(h.Home, of):
			return true
		}
		// The routed interface leads to several pods, or was made anew for another pod with the
		// same name while no agent ran. It does not tell whether this pod is there.
	}
	return e.cfg.Attached != nil && e.cfg.Attached(a) && e.now().Sub(began) < orphanTime
}

// shared tells whether the home of a pod is also that of another.
func (e *Enforcer) shared(h link.Home, of policy.PodRef) bool {
	for _, other := range e.homes {
		if other.Home == h && other.Pod.Orphan() != of.Orphan() {
			return true
		}
	}
	return false
}

// endOrphans has the last snapshot prepared again if an orphan does not stay closed.
func (e *Enforcer) endOrphans() {
	for a, began := range e.orphans.since {
		if of, _ := e.coming.Pod(a); !e.isOrphan(a, of, began) {
			e.cfg.Reprepare()
			return
		}
	}
}

// standing returns whether a home's interface is there. Where that cannot be told, it is.
func (e *Enforcer) standing() func(link.Home) bool {
	links, err := e.k.Links.Indexes()
	if err != nil {
		e.log.Warn("cannot find which interfaces there are; homes stay as they are known", "error", err)
		return func(link.Home) bool { return true }
	}
	last := e.orphans.links
	e.orphans.links = links
	stands := func(h link.Home) bool {
		name := h.Iface
		if h.Bridged() {
			name = h.Port
		}
		return links[name] != 0 && (last[name] == 0 || last[name] == links[name])
	}
	for a, h := range e.orphans.homes {
		if !h.Nowhere() && !stands(h.Home) {
			e.orphans.homes[a] = plan.Home{Pod: h.Pod}
		}
	}
	return stands
}

// noteHomes notes the homes of pods, for when these have no object any more. Rules for ingress ask for the homes of
// all pods, for as long as these have their interface.
func (e *Enforcer) noteHomes(s *policy.Snapshot) {
	maps.DeleteFunc(e.orphans.homes, func(a netip.Addr, h plan.Home) bool {
		_, coming := s.Pod(a)
		_, inForce := e.snapshot.Pod(a)
		return !coming && !inForce && (h.Nowhere() || !haveIngress(e.plan))
	})
	for a, h := range e.homes {
		if !h.Nowhere() {
			e.orphans.homes[a] = h
		}
	}
}
