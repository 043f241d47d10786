package peers

import (
	"slices"

	"github.com/namegate/namegate/policy"
)

// bucket has pods, in no order, and the number of their ports to look at: their named
// ports, in a name's bucket the ports of that name.
type bucket struct {
	pods  []*pod
	ports int
	asked int // of a label: how many terms of sets ask for it
}

func (r *bucket) add(p *pod, ports int) {
	r.pods, r.ports = append(r.pods, p), r.ports+ports
}

func (r *bucket) remove(p *pod, ports int) {
	r.pods, r.ports = removed(r.pods, p), r.ports-ports
}

// counts returns the cost of looking at the pods.
func (r bucket) counts() counts { return counts{len(r.pods), max(len(r.pods), r.ports)} }

// counts is the cost of looking at pods, and at their ports: at least one each.
type counts struct{ pods, ports int }

// of returns what counts for sets of the kind.
func (c counts) of(kind policy.PeerKind) int {
	if kind == policy.PeerPorts {
		return c.ports
	}
	return c.pods
}

func (c *counts) add(p *pod) { c.pods, c.ports = c.pods+1, c.ports+max(1, len(p.ports)) }

// removed returns the list, whose order means nothing, without p.
func removed(list []*pod, p *pod) []*pod {
	i, last := slices.Index(list, p), len(list)-1
	if i < 0 {
		return list
	}
	list[i], list[last] = list[last], nil
	return list[:last]
}

// buckets finds pods by a name of theirs.
type buckets[K comparable] map[K]*bucket

func (x buckets[K]) add(k K, p *pod, ports int) {
	r := x[k]
	if r == nil {
		r = &bucket{}
		x[k] = r
	}
	r.add(p, ports)
}

func (x buckets[K]) remove(k K, p *pod, ports int) {
	if r := x[k]; r != nil {
		if r.remove(p, ports); len(r.pods) == 0 {
			delete(x, k)
		}
	}
}

// of returns the pods of the name.
func (x buckets[K]) of(k K) bucket {
	if r := x[k]; r != nil {
		return *r
	}
	return bucket{}
}

// label is a key and its value.
type label = [2]string

// Want brings the index to the labels that terms of the wanted specs require by one
// value, and no others: a pod may have tens of thousands that no set asks for, each of
// which would take several times its size.
func (x *Index) Want(came, went []*Spec) {
	fresh := map[label]*bucket{}
	for _, s := range came {
		s.eachLabel(func(at label) {
			r := x.byLabel[at]
			if r == nil {
				r = &bucket{}
				x.byLabel[at], fresh[at] = r, r
			}
			r.asked++
		})
	}
	for _, s := range went {
		s.eachLabel(func(at label) {
			r := x.byLabel[at]
			if r.asked--; r.asked == 0 {
				delete(x.byLabel, at)
				delete(fresh, at)
			}
		})
	}
	if len(fresh) == 0 {
		return
	}
	for _, sp := range x.spaces {
		for _, p := range sp.pods {
			p.listed(fresh, func(r *bucket) { r.add(p, len(p.ports)) })
		}
	}
}

// eachLabel calls do with the labels that terms ask for by one value, as often as they do.
func (s *Spec) eachLabel(do func(label)) {
	for i := range s.terms {
		for j := range s.terms[i].pods.requirements {
			if at, one := s.terms[i].pods.requirements[j].single(); one {
				do(at)
			}
		}
	}
}

// listed calls each with the existing buckets of the pod's labels.
func (p *pod) listed(in map[label]*bucket, each func(*bucket)) {
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
