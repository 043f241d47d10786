package print

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
)

// Statuses prints what agents do. The agent of this node is an object of its own; others are items of "nodes".
func (p *Printer) Statuses(all []console.Status, local bool) error {
	slices.SortStableFunc(all, func(a, b console.Status) int { return cmp.Compare(a.Node, b.Node) })
	switch {
	case !p.People() && local:
		return p.Value(all[0])
	case !p.People():
		return p.Value(map[string]any{"nodes": all})
	}
	for i := range all {
		if i > 0 {
			fmt.Fprintln(p.Out)
		}
		t := (&status{&all[i]}).table()
		if err := t.print(p.Out, p.Colour); err != nil {
			return err
		}
	}
	return nil
}

// status is that of one agent.
type status struct{ *console.Status }

// table is the status for people, a line each, problems in red.
func (s *status) table() *table {
	t := &table{}
	say := func(name string, colour colour, format string, args ...any) {
		t.add(cell{text: name}, cell{fmt.Sprintf(format, args...), colour})
	}
	if s.Node != "" {
		say("node", bold, "%s", s.Node)
	}
	say("version", plain, "%s", s.Version)
	sync := green
	if !s.InSync {
		sync = red
	}
	say("in sync", sync, "%v (snapshot %d)", s.InSync, s.Snapshot)
	if s.Failing != "" {
		say("failing", red, "%s", s.Failing)
	}
	if s.Waiting > 0 {
		say("waiting", yellow, "%d pods, which become isolated when their exact names are open, within 2 s", s.Waiting)
	}
	if s.Dataplane.Name != "" {
		name := s.Dataplane.Name
		if s.Dataplane.Variant != "" {
			name += " (" + s.Dataplane.Variant + ")"
		}
		say("dataplane", plain, "%s: %s", name, s.Dataplane.Reason)
	}
	say("selected pods", plain, "%d", s.Enforcer.Selected)
	say("granted addresses", plain, "%d", s.Enforcer.Grants)
	if len(s.Enforcer.AtBound) > 0 {
		say("at the limit of grants", yellow, "%s; their own grants end early (limits of the Corefile)", strings.Join(s.Enforcer.AtBound, ", "))
	}
	known := ""
	if s.NetworkPolicies > 0 || s.Enforcer.PeerSets > 0 {
		known = fmt.Sprintf(": %d, with %d peer sets of %d entries; %d pods of other nodes known", s.NetworkPolicies, s.Enforcer.PeerSets, s.Enforcer.PeerEntries, s.RemotePods)
	}
	say("NetworkPolicies", plain, "enforce %s%s", cmp.Or(s.Enforce, "unknown"), known)
	for _, dialled := range slices.SortedFunc(maps.Keys(s.Enforcer.Serving), netip.Addr.Compare) {
		say("serves", plain, "%s on %s", dialled, s.Enforcer.Serving[dialled])
	}
	s.wrong(say)
	if s.Failsafes != nil {
		for _, row := range s.Failsafes.Rows {
			say("failsafe", plain, "%s", row)
		}
	}
	s.counts(say)
	return t
}

// Finding is something that is wrong with a node.
type Finding struct {
	What    string `json:"what"` // the name of the line, as `namegate status` prints it
	Message string `json:"message"`
}

// Findings returns what is wrong, as `namegate status` prints it.
func Findings(of *console.Status) []Finding {
	s := &status{of}
	out := []Finding{}
	say := func(name string, _ colour, format string, args ...any) {
		out = append(out, Finding{name, console.Safe(fmt.Sprintf(format, args...))})
	}
	if s.Failing != "" {
		say("failing", red, "%s", s.Failing)
	}
	s.wrong(say)
	return out
}

// wrong says what does not work.
func (s *status) wrong(say func(string, colour, string, ...any)) {
	for _, d := range s.Enforcer.Deviations {
		cause := "a repair is under way"
		if d.Error != "" {
			cause = d.Error
		}
		say("not as wanted", red, "%s since %s: %s", d.Object, d.Since.Format(time.RFC3339), cause)
	}
	for _, a := range s.Enforcer.Homeless {
		say("no home", red, "%s: no interface of this node leads to it, its source is not checked", a)
	}
	for _, a := range s.Enforcer.HomeRefused {
		say("no home", red, "%s: no bridge port of its own leads to it, nothing is accepted from it", a)
	}
	for _, a := range s.Enforcer.Unseen {
		say("half enforced", red, "%s: netfilter does not see its bridge, nothing is denied between its pods; load br_netfilter and set net.bridge.bridge-nf-call-iptables=1 and bridge-nf-call-ip6tables=1", a)
	}
	for _, a := range slices.SortedFunc(maps.Keys(s.Enforcer.Switched), netip.Addr.Compare) {
		say("half enforced", red, "%s: a switch that netfilter does not see connects it; only what leaves the switch by %s is judged, and its source is not checked", a, s.Enforcer.Switched[a])
	}
	for _, a := range s.Enforcer.Bypassing {
		say("past interception", red, "%s: its DNS leaves for a pod of the resolver, past the agent, so names open nothing; a load balancer of eBPF does that: have pods ask the endpoint (kubelet's clusterDNS)", a)
	}
	for _, a := range s.Enforcer.DroppedTCP {
		say("queries lost", red, "%s: connections of DNS over TCP were dropped: it, or all pods together, opened more than the node leads to the agent (50 a second for a pod); let its resolver keep connections open, or ask over UDP", a)
	}
	for _, c := range s.Enforcer.NotCut {
		say("not cut", red, "%s: a flow table of another program may still forward it; it is tried again each second", c)
	}
	for _, t := range s.Enforcer.UnreadTables {
		say("not read", yellow, "%s: it is unknown whether rules there use the mark bits; compare them with mark in the Corefile", t)
	}
	if s.Away != nil {
		say("API server", red, "away since %s, what was known then is in force: %s", s.Away.Since.Format(time.RFC3339), s.Away.Error)
	}
	for _, p := range s.Paths {
		say("queries lost", red, "those of %s do not reach the agent: %s", p.Pod, p.Path)
	}
	for _, f := range s.Files {
		say("broken file", red, "%s: %s (since %s; its last good content is in force)", f.File, f.Reason, f.Since.Format(time.RFC3339))
	}
	if s.Failsafes != nil && s.Failsafes.Missing != "" {
		say("failsafe unknown", red, "%s; until then this node accepts no policies for nodes", s.Failsafes.Missing)
	}
	for _, p := range s.Problems {
		name, colour := "problem", yellow
		if p.Opens {
			name, colour = "error", red
		}
		say(name, colour, "%s: %s: %s %s", p.Object, p.Reason, p.Path, p.Message)
	}
}

// counts prints the counters.
func (s *status) counts(say func(string, colour, string, ...any)) {
	p := &s.Proxy
	say("answers", plain, "%d from cache, %d forwarded, %d stale", p.CacheHits, p.CacheMisses, p.CacheStale)
	if p.Prefetches > 0 {
		say("prefetches", plain, "%d", p.Prefetches)
	}
	if p.Followed > 0 {
		say("followed", plain, "%d questions for names that allowed ones point at", p.Followed)
	}
	if n := p.ShedPod + p.ShedAll + p.ShedZone; n > 0 {
		say("too many", yellow, "%d queries got SERVFAIL: %d of one pod under way, %d of all, %d of one forward (max_concurrent)", n, p.ShedPod, p.ShedAll, p.ShedZone)
	}
	for _, f := range s.Flows {
		if f.Count > 0 {
			tier := ""
			if f.Reason == string(audit.ReasonRule) {
				tier = " (" + f.Tier + ")"
			}
			to := ""
			if f.Direction == audit.Ingress {
				to = " to pods"
			}
			if to != "" && tier != "" {
				to += " or the node"
			}
			say(f.Verdict, verdictColours[f.Verdict], "%d%s by reason %s%s", f.Count, to, f.Reason, tier)
		}
	}
	if s.Audit != nil {
		say("audit lines", plain, "%d written, %d dropped", s.Audit.Written, s.Audit.Dropped)
	}
}

// shownNodes bounds a list of nodes in a sentence.
const shownNodes = 16

// ClusterStatus prints the nodes, those that do not enforce all NetworkPolicies while others do, and then what is
// wrong with policies.
func (p *Printer) ClusterStatus(s *console.ClusterStatus) error {
	if !p.People() {
		return p.Value(s)
	}
	all := slices.ContainsFunc(s.Nodes, func(n console.NodeReport) bool { return n.Enforce == console.EnforceAll })
	var others []string
	t := &table{Head: []string{"NODE", "VERSION", "IN SYNC", "NETWORKPOLICIES", "REPORTED"}}
	for _, n := range s.Nodes {
		word := cell{"yes", green}
		switch {
		case n.Silent:
			word = cell{"silent", red}
		case !n.InSync:
			word = cell{"no", red}
		}
		enforce := cell{text: n.Enforce}
		if all && n.Enforce != console.EnforceAll {
			enforce.colour = red
			others = append(others, n.Node)
		}
		t.add(cell{n.Node, bold}, cell{text: n.Version}, word, enforce, cell{text: ago(p.Now().Sub(n.Renewed))})
	}
	if err := t.print(p.Out, p.Colour); err != nil {
		return err
	}
	if len(others) > 0 {
		fmt.Fprintf(p.Out, "\nnot all NetworkPolicies are enforced on %s: networkPolicy.enforce is All on the other nodes\n", console.Safe(console.Listed(others, shownNodes)))
	}
	for _, l := range s.Left {
		fmt.Fprintf(p.Warn, "namegate: you may not list %s, so their problems are left out\n", console.Safe(l))
	}
	if len(s.Problems) == 0 {
		return nil
	}
	fmt.Fprintln(p.Out)
	t = &table{Head: []string{"KIND", "POLICY", "CONDITION", "REASON", "MESSAGE"}}
	for _, c := range s.Problems {
		name := c.Name
		if c.Namespace != "" {
			name = c.Namespace + "/" + c.Name
		}
		t.add(cell{text: c.Kind}, cell{text: name}, cell{c.Condition, red}, cell{text: c.Reason}, cell{text: c.Message})
	}
	return t.print(p.Out, p.Colour)
}
