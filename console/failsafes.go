package console

import (
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

// Failsafes are the destinations that a node reaches whatever its policies say.
type Failsafes struct {
	Rows []Failsafe `json:"rows"`
	// Missing tells which are not known, "" for none. Until they are, the node accepts no policies.
	Missing string `json:"missing,omitempty"`
}

// Failsafe is a row of them.
type Failsafe struct {
	Row          string   `json:"row"`
	Destinations []string `json:"destinations"`
	Ports        string   `json:"ports"`
	// Yields: a rule in force that lists an address among its networks, pods or nodes decides instead.
	Yields bool `json:"yields,omitempty"`
}

// shownDestinations is how many destinations of a row are printed for people.
const shownDestinations = 8

// String returns "ROW: PORTS to DESTINATIONS".
func (f Failsafe) String() string {
	to := Listed(f.Destinations, shownDestinations)
	if f.Yields {
		to += ", unless a rule lists the address"
	}
	return f.Row + ": " + f.Ports + " to " + to
}

// FailsafesOf returns the failsafes of a node, nil for nil.
func FailsafesOf(n *policy.Node) *Failsafes {
	if n == nil {
		return nil
	}
	out := &Failsafes{Rows: []Failsafe{{Row: "always", Destinations: []string{failsafe.Always}, Ports: "every protocol"}}, Missing: n.Missing}
	for i := range n.Failsafes {
		f := &n.Failsafes[i]
		row := Failsafe{Row: f.Name, Ports: f.PortText(), Yields: f.Yields}
		for _, n := range f.Networks {
			text := n.String()
			if n.IsSingleIP() {
				text = n.Addr().String()
			}
			row.Destinations = append(row.Destinations, text)
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}
