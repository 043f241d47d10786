package compile

import (
	"slices"

	"github.com/namegate/namegate/policy"
)

// roster is pods in an order that means nothing, with how many ports to look at they
// have: their named ports, of a name's roster those of the name.
type roster struct {
	pods  []*peerPod
	ports int
	asked int // of a label: how many terms of sets ask for it
}

func (r *roster) add(p *peerPod, ports int) {
	r.pods, r.ports = append(r.pods, p), r.ports+ports
}

func (r *roster) remove(p *peerPod, ports int) {
	r.pods, r.ports = removed(r.pods, p), r.ports-ports
}

// counts returns what it costs to look at the pods.
func (r roster) counts() counts { return counts{len(r.pods), max(len(r.pods), r.ports)} }

// counts is what it costs to look at pods, and at their ports: one at least for each.
type counts struct{ pods, ports int }

// of returns what counts for sets of the kind.
func (c counts) of(kind policy.PeerKind) int {
	if kind == policy.PeerPorts {
		return c.ports
	}
	return c.pods
}

func (c *counts) add(p *peerPod) { c.pods, c.ports = c.pods+1, c.ports+max(1, len(p.ports)) }

// having returns the pods that have a port of the name.
func (c *crowd) having(name string) roster {
	if r := c.byPort[name]; r != nil {
		return *r
	}
	return roster{}
}

// removed returns the list, whose order means nothing, without p.
func removed(list []*peerPod, p *peerPod) []*peerPod {
	i, last := slices.Index(list, p), len(list)-1
	if i < 0 {
		return list
	}
	list[i], list[last] = list[last], nil
	return list[:last]
}

// rosters finds pods by a name of theirs.
type rosters[K comparable] map[K]*roster

func (x rosters[K]) add(k K, p *peerPod, ports int) {
	r := x[k]
	if r == nil {
		r = &roster{}
		x[k] = r
	}
	r.add(p, ports)
}

func (x rosters[K]) remove(k K, p *peerPod, ports int) {
	if r := x[k]; r != nil {
		if r.remove(p, ports); len(r.pods) == 0 {
			delete(x, k)
		}
	}
}

// label is a key and its value.
type label = [2]string

// want brings byLabel to the labels that terms of the sets that there are ask for by one
// value, and no others: a pod may have tens of thousands that nobody asks for, each of
// which would take several times its size.
func (c *crowd) want(came, went []*liveSet) {
	fresh := map[label]*roster{}
	for _, l := range came {
		l.spec.eachLabel(func(at label) {
			r := c.byLabel[at]
			if r == nil {
				r = &roster{}
				c.byLabel[at], fresh[at] = r, r
			}
			r.asked++
		})
	}
	for _, l := range went {
		l.spec.eachLabel(func(at label) {
			r := c.byLabel[at]
			if r.asked--; r.asked == 0 {
				delete(c.byLabel, at)
				delete(fresh, at)
			}
		})
	}
	if len(fresh) == 0 {
		return
	}
	for _, sp := range c.spaces {
		for _, p := range sp.pods {
			p.listed(fresh, func(r *roster) { r.add(p, len(p.ports)) })
		}
	}
}

// eachLabel calls do with the labels that terms ask for by one value, as often as they do.
func (s *peerSpec) eachLabel(do func(label)) {
	for i := range s.terms {
		for j := range s.terms[i].pods.asks {
			if at, one := s.terms[i].pods.asks[j].single(); one {
				do(at)
			}
		}
	}
}

// listed calls each with the rosters of the pod's labels, those that there are.
func (p *peerPod) listed(in map[label]*roster, each func(*roster)) {
	if len(in) < len(p.labels) {
		for at, r := range in {
			if v, has := p.labels[at[0]]; has && v == at[1] {
				each(r)
			}
		}
		return
	}
	for k, v := range p.labels {
		if r := in[label{k, v}]; r != nil {
			each(r)
		}
	}
}
