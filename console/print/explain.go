package print

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
)

// OwnExplanation returns the explanation of the pod's own agent: of several agents all others say
// that the pod is elsewhere. There is one reply at least.
func OwnExplanation(all []explain.Explanation) *explain.Explanation {
	return &all[max(0, slices.IndexFunc(all, func(e explain.Explanation) bool { return e.Verdict != explain.Elsewhere }))]
}

// Explained prints an explanation, and returns the error with which the command
// ends: nil where the connection passes.
func (p *Printer) Explained(e *explain.Explanation) error {
	err := error(nil)
	if p.People() {
		err = p.explained(e)
	} else {
		err = p.Value(e)
	}
	switch e.Verdict {
	case explain.Denied:
		return errors.Join(err, &console.Answered{Code: console.ExitNo})
	case explain.Elsewhere, explain.Unknown:
		return errors.Join(err, &console.Answered{Code: console.ExitUnknown})
	}
	return err
}

// verdictWords are the verdicts for people.
var verdictWords = map[explain.Verdict]string{
	explain.OnceAsked: "allowed once the pod asks for the name",
	explain.Checked:   "allowed with the right server name",
	explain.WouldDeny: "passes, and would be denied",
	explain.Unknown:   "not known here",
	explain.Elsewhere: "not known here",
}

func (p *Printer) explained(e *explain.Explanation) error {
	word := cmp.Or(verdictWords[e.Verdict], string(e.Verdict))
	asked := e.Pod + " to " + e.To
	if e.From != "" {
		asked = e.From + " to " + e.Pod
		if e.To != "" {
			asked += " on " + e.To
		}
	}
	fmt.Fprintf(p.Out, "%s: %s\n", console.Safe(asked), verdictColours[string(e.Verdict)].paint(word, p.Colour))
	fmt.Fprintf(p.Out, "%s.\n\n", console.Safe(e.Reason))
	t, last := &table{}, ""
	say := func(name, format string, args ...any) {
		if last == name {
			name = " "
		} else {
			last = name
		}
		t.add(cell{text: name}, cell{text: fmt.Sprintf(format, args...)})
	}
	say("node", "%s", e.Node)
	if e.Interface != "" {
		say("interface", "%s", e.Interface)
	}
	for _, q := range e.Policies {
		say("selected by", "%s (%s)", q.Policy, cmp.Or(q.Enforcement, "gone by now"))
	}
	for _, c := range e.ClusterPolicies {
		mode := c.Enforcement
		if c.Traffic != "" {
			mode += ", " + c.Traffic
		}
		say("selected by", "%s (%s)", c, mode)
	}
	by := "selected by"
	if len(e.Policies)+len(e.ClusterPolicies) > 0 {
		by = "and by"
	}
	for _, n := range e.NetworkPolicies {
		say(by, "NetworkPolicy %s", n)
	}
	if len(e.Policies)+len(e.ClusterPolicies)+len(e.NetworkPolicies)+len(e.Rules) == 0 && e.Verdict != explain.Elsewhere {
		say("selected by", "no policy")
	}
	p.evidence(e, say)
	for _, n := range e.Notes {
		say("note", "%s", n)
	}
	if err := t.print(p.Out, p.Colour); err != nil {
		return err
	}
	return p.advised(e.Advice)
}

// evidence lists the grounds of the answer.
func (p *Printer) evidence(e *explain.Explanation, say func(name, format string, args ...any)) {
	p.rules(e, say)
	for _, g := range e.Open {
		state := "for " + span(g.Until.Sub(p.Now())) + " more" + p.byUse(g.Held)
		if g.Ended {
			state = "ended " + ago(p.Now().Sub(g.Until))
		}
		say("opened", "%s for %s on %s%s, %s", g.Address, g.Name, g.Ports, explain.Requires(g.ServerName), state)
	}
	for _, s := range e.Names {
		by, blocked := "", ""
		if s.Pod != "" {
			by = ", asked by " + s.Pod
		}
		if !s.Asked.IsZero() {
			by = cmp.Or(by, ", asked") + " " + ago(p.Now().Sub(s.Asked))
		}
		if s.Blocked != "" {
			blocked = ", blocked: " + s.Blocked
		}
		say("resolved", "%s is %s%s%s", s.Name, s.Address, by, blocked)
	}
	for _, f := range e.Flows {
		names := ""
		if len(f.Names) > 0 {
			names = " (" + strings.Join(f.Names, ", ") + ")"
		}
		if f.ServerName != "" {
			names += fmt.Sprintf(" for %q", f.ServerName)
		}
		why := cmp.Or(f.By, f.Reason)
		if f.Reason != string(audit.ReasonRule) && f.By != "" {
			why = f.Reason + " by " + f.By
		}
		say(f.Verdict+" lately", "%d × %s %s%s, %s: %s", f.Count, f.Protocol, hostPort(f.Address, f.Port), names, ago(p.Now().Sub(f.Last)), why)
	}
}

// rules says which rules lead to the target: in the order in which they are asked, where
// cluster policies have some for the pod.
func (p *Printer) rules(e *explain.Explanation, say func(name, format string, args ...any)) {
	for i, r := range e.Rules {
		say("rules in order", "%d. %s", i+1, r)
	}
	if len(e.Rules) > 0 {
		return
	}
	for _, m := range e.Matches {
		kind := explain.Requires(m.ServerName)
		if m.Audit {
			kind += ", Audit"
		}
		if !m.OnPort {
			kind += ", not on this port"
		}
		say("covered by", "%s: %q of %s %s, on %s%s", m.Name, m.Match, m.Policy, m.Path, cmp.Or(m.Ports, "no port"), kind)
	}
	if len(e.Matches) == 0 && len(e.Policies) > 0 {
		say("covered by", "no match")
	}
	for _, r := range e.Peers {
		state := ""
		if !r.OnPort {
			state = ", not on this port"
		}
		say("peer", "%s by NetworkPolicy %s %s (%s), on %s%s", peerOf(r), r.Policy, r.Path, r.Peer, cmp.Or(r.Ports, "no port"), state)
	}
}

// peerOf writes the peer of a rule of a NetworkPolicy.
func peerOf(r explain.Peer) string {
	switch {
	case r.Address == "":
		return "every address"
	case r.Pod != "":
		return fmt.Sprintf("%s (pod %s)", r.Address, r.Pod)
	}
	return r.Address
}

// advised says what to do.
func (p *Printer) advised(a *explain.Advice) error {
	if a == nil {
		return nil
	}
	var b strings.Builder
	b.WriteString("\n" + bold.paint("What to do", p.Colour) + "\n")
	for i, s := range a.Do {
		fmt.Fprintf(&b, "%d. %s\n", i+1, console.Safe(s))
	}
	for _, line := range a.Corefile {
		fmt.Fprintf(&b, "\n    %s\n", console.Safe(line))
	}
	for _, manifest := range []string{a.Manifest, a.NetworkPolicy} {
		if manifest != "" {
			fmt.Fprintf(&b, "\n---\n%s", safeLines(manifest))
		}
	}
	_, err := p.Out.Write([]byte(b.String()))
	return err
}

func ago(d time.Duration) string { return span(d) + " ago" }

// hostPort writes a destination, without a port where there is none.
func hostPort(address string, port uint16) string {
	switch {
	case port == 0:
		return address
	case strings.Contains(address, ":"):
		address = "[" + address + "]"
	}
	return address + ":" + strconv.Itoa(int(port))
}
