package console

import (
	"strings"

	"github.com/namegate/namegate/policy/failsafe"
)

// Failsafes are the destinations that a node reaches whatever the policies for it say.
type Failsafes struct {
	Entries []Failsafe `json:"entries"`
	// Findings say what could not be determined. With one that is not stale, the node only audits
	// the policies for it.
	Findings []FailsafeFinding `json:"findings,omitempty"`
	// Enforced: all failsafes are known.
	Enforced bool `json:"enforced"`
}

// Failsafe is one of them.
type Failsafe struct {
	Protocol    string `json:"protocol"`
	Destination string `json:"destination"`
	Ports       string `json:"ports,omitempty"`
	Match       string `json:"match,omitempty"` // a further condition, in words of nftables
	Reason      string `json:"reason"`
	Source      string `json:"source"`
	Remark      string `json:"remark,omitempty"` // an exception
}

// String returns "PROTOCOL DESTINATION port PORTS: REASON (SOURCE)".
func (f Failsafe) String() string {
	to := f.Protocol + " " + f.Destination
	if f.Ports != "" {
		to += " port " + f.Ports
	}
	if f.Match != "" {
		to += " " + f.Match
	}
	text := to + ": " + f.Reason + " (" + f.Source + ")"
	if f.Remark != "" {
		text += " " + f.Remark
	}
	return text
}

// FailsafeFinding is what could not be determined.
type FailsafeFinding struct {
	Source  string `json:"source"`
	Message string `json:"message"`
	Stale   bool   `json:"stale,omitempty"` // its last values count
}

// FailsafesOf returns the failsafes of a list, nil for nil.
func FailsafesOf(l *failsafe.List) *Failsafes {
	if l == nil {
		return nil
	}
	out := &Failsafes{Entries: []Failsafe{}, Enforced: l.Complete()}
	for i := range l.Entries {
		e := &l.Entries[i]
		out.Entries = append(out.Entries, Failsafe{
			Protocol: e.Protocol(), Destination: e.Destination(), Ports: e.PortText(), Match: e.Match, Reason: e.Reason, Source: e.Source, Remark: strings.TrimSpace(e.Remark()),
		})
	}
	for _, f := range l.Findings {
		out.Findings = append(out.Findings, FailsafeFinding{f.Source, f.Message, f.Stale})
	}
	return out
}
