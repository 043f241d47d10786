package proxy

import "slices"

// ZoneUpstreams are how many of a zone's upstreams answer.
type ZoneUpstreams struct {
	Zone     string // as in the Corefile
	Up, Down int    // those of the last resort included
}

// Upstreams returns the zones of the present configuration in its order, and how
// many of their upstreams are up now. One that is never probed counts as up.
func (s *Server) Upstreams() (out []ZoneUpstreams) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.setup.Load().config
	for i := range c.Zones {
		z := ZoneUpstreams{Zone: c.Zones[i].Name.String()}
		if f := s.zones[c.Zones[i].Name]; f != nil {
			r := f.routes.Load()
			for _, u := range slices.Concat(r.first, r.last) {
				if u.down(r.zone.MaxFails) {
					z.Down++
				} else {
					z.Up++
				}
			}
		}
		out = append(out, z)
	}
	return out
}
