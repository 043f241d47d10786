package console

import (
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

// Failsafes are what leaves and what reaches a node whatever its policies say.
type Failsafes struct {
	Rows []Failsafe `json:"rows"`
	// Missing tells which are not known, "" for none. Until they are, the node accepts no policies.
	Missing string `json:"missing,omitempty"`
}

// Failsafe is a row of them.
type Failsafe struct {
	Row string `json:"row"`
	// Direction is "to" for what leaves, "from" for what arrives, or "to and from".
	Direction string   `json:"direction"`
	Addresses []string `json:"addresses"`
	Ports     string   `json:"ports"`
	// Yields: a rule in force that lists an address among its networks, pods or nodes decides instead.
	Yields bool `json:"yields,omitempty"`
}

// shownAddresses is how many addresses of a row are printed for people.
const shownAddresses = 8

// String returns "ROW: PORTS DIRECTION ADDRESSES".
func (f Failsafe) String() string {
	text := f.Row + ": " + f.Ports + " " + f.Direction + " " + Listed(f.Addresses, shownAddresses)
	if f.Yields {
		text += ", unless a rule lists the address"
	}
	return text
}

// FailsafesOf returns the failsafes of a node, nil for nil.
func FailsafesOf(n *policy.Node) *Failsafes {
	if n == nil {
		return nil
	}
	out := &Failsafes{Rows: []Failsafe{{Row: "always", Direction: "to and from", Addresses: []string{failsafe.Always}, Ports: "every protocol"}}, Missing: n.Missing}
	for i := range n.Failsafes {
		f := &n.Failsafes[i]
		row := Failsafe{Row: f.Name, Direction: "to", Ports: f.PortText(), Yields: f.Yields}
		switch {
		case f.In && f.Out:
			row.Direction = "to and from"
		case f.In:
			row.Direction = "from"
		}
		for _, n := range f.Networks {
			text := n.String()
			if n.IsSingleIP() {
				text = n.Addr().String()
			}
			row.Addresses = append(row.Addresses, text)
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}
