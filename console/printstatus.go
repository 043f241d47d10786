package console

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/audit"
)

// Statuses prints what agents do. A single agent without a node, as of the unix
// socket, is an object of its own; others are items of "nodes".
func (p *Printer) Statuses(replies []Reply[Status]) error {
	slices.SortStableFunc(replies, func(a, b Reply[Status]) int { return cmpNode(a, b) })
	if !p.People() {
		if len(replies) == 1 && replies[0].Node == "" {
			return p.value(replies[0].Value)
		}
		nodes := struct {
			Nodes []Status `json:"nodes"`
		}{}
		for _, r := range replies {
			nodes.Nodes = append(nodes.Nodes, r.Value)
		}
		return p.value(nodes)
	}
	for i, r := range replies {
		if i > 0 {
			fmt.Fprintln(p.Out)
		}
		t := r.Value.table()
		if err := t.print(p.Out, p.Colour); err != nil {
			return err
		}
	}
	return nil
}

func cmpNode(a, b Reply[Status]) int {
	switch {
	case a.Value.Node < b.Value.Node:
		return -1
	case a.Value.Node > b.Value.Node:
		return 1
	}
	return 0
}

// table is the status for people, a line each, problems in red.
func (s *Status) table() *Table {
	t := &Table{}
	say := func(name string, colour Colour, format string, args ...any) {
		t.add(Cell{Text: name}, Cell{fmt.Sprintf(format, args...), colour})
	}
	if s.Node != "" {
		say("node", Bold, "%s", s.Node)
	}
	say("version", Plain, "%s", s.Version)
	sync := Green
	if !s.InSync {
		sync = Red
	}
	say("in sync", sync, "%v (snapshot %d)", s.InSync, s.Snapshot)
	if s.Failing != "" {
		say("failing", Red, "%s", s.Failing)
	}
	if s.Waiting > 0 {
		say("waiting", Yellow, "%d pods, which become isolated when their exact names are open, within 2 s", s.Waiting)
	}
	if s.Dataplane.Name != "" { // agents of the previous release do not tell
		name := s.Dataplane.Name
		if s.Dataplane.Variant != "" {
			name += " (" + s.Dataplane.Variant + ")"
		}
		say("dataplane", Plain, "%s: %s", name, s.Dataplane.Reason)
	}
	say("selected pods", Plain, "%d", s.Enforcer.Selected)
	say("granted addresses", Plain, "%d", s.Enforcer.Grants)
	if len(s.Enforcer.AtBound) > 0 {
		say("at the limit of grants", Yellow, "%s; their own grants end early (limits of the Corefile)", strings.Join(s.Enforcer.AtBound, ", "))
	}
	if s.NetworkPolicies > 0 || s.Enforcer.PeerSets > 0 {
		say("NetworkPolicies", Plain, "%d, with %d peer sets of %d entries; %d pods of other nodes known", s.NetworkPolicies, s.Enforcer.PeerSets, s.Enforcer.PeerEntries, s.RemotePods)
	}
	for _, dialled := range slices.SortedFunc(maps.Keys(s.Enforcer.Serving), netip.Addr.Compare) {
		say("serves", Plain, "%s on %s", dialled, s.Enforcer.Serving[dialled])
	}
	s.wrong(say)
	s.failsafes(say)
	s.counts(say)
	return t
}

// failsafes lists the destinations that the node reaches in any case, and what is not known of them.
func (s *Status) failsafes(say func(string, Colour, string, ...any)) {
	s.unknownFailsafes(say)
	if s.Failsafes == nil {
		return
	}
	for _, e := range s.Failsafes.Entries {
		say("failsafe", Plain, "%s", e)
	}
}

// unknownFailsafes lists what could not be determined of them.
func (s *Status) unknownFailsafes(say func(string, Colour, string, ...any)) {
	if s.Failsafes == nil {
		return
	}
	for _, f := range s.Failsafes.Findings {
		if f.Stale {
			say("failsafe is stale", Yellow, "%s: %s; its last values count", f.Source, f.Message)
		} else {
			say("failsafe unknown", Red, "%s: %s; until then this node only audits policies for nodes", f.Source, f.Message)
		}
	}
}

// Finding is something that is wrong with a node.
type Finding struct {
	What    string `json:"what"` // the name of the line, as `namegate status` prints it
	Message string `json:"message"`
}

// Findings returns what is wrong, as `namegate status` prints it.
func (s *Status) Findings() []Finding {
	out := []Finding{}
	say := func(name string, _ Colour, format string, args ...any) {
		out = append(out, Finding{name, safe(fmt.Sprintf(format, args...))})
	}
	if s.Failing != "" {
		say("failing", Red, "%s", s.Failing)
	}
	s.wrong(say)
	s.unknownFailsafes(say)
	return out
}

// wrong says what does not work.
func (s *Status) wrong(say func(string, Colour, string, ...any)) {
	for _, d := range s.Enforcer.Deviations {
		cause := "a repair is under way"
		if d.Error != "" {
			cause = d.Error
		}
		say("not as wanted", Red, "%s since %s: %s", d.Object, d.Since.Format(time.RFC3339), cause)
	}
	for _, a := range s.Enforcer.Homeless {
		say("no home", Red, "%s: no interface of this node leads to it, its source is not checked", a)
	}
	for _, a := range s.Enforcer.HomeRefused {
		say("no home", Red, "%s: no bridge port of its own leads to it, nothing is accepted from it", a)
	}
	for _, a := range s.Enforcer.Unseen {
		say("half enforced", Red, "%s: netfilter does not see its bridge, nothing is denied between its pods; load br_netfilter and set net.bridge.bridge-nf-call-iptables=1 and bridge-nf-call-ip6tables=1", a)
	}
	for _, a := range slices.SortedFunc(maps.Keys(s.Enforcer.Switched), netip.Addr.Compare) {
		say("half enforced", Red, "%s: a switch that netfilter does not see connects it; only what leaves the switch by %s is judged, and its source is not checked", a, s.Enforcer.Switched[a])
	}
	for _, a := range s.Enforcer.Bypassing {
		say("past interception", Red, "%s: its DNS leaves for a pod of the resolver, past the agent, so names open nothing; a load balancer of eBPF does that: have pods ask the endpoint (kubelet's clusterDNS)", a)
	}
	for _, a := range s.Enforcer.DroppedTCP {
		say("queries lost", Red, "%s: connections of DNS over TCP were dropped: it, or all pods together, opened more than the node leads to the agent (50 a second for a pod); let its resolver keep connections open, or ask over UDP", a)
	}
	for _, c := range s.Enforcer.NotCut {
		say("not cut", Red, "%s: a flow table of another program may still forward it; it is tried again each second", c)
	}
	for _, t := range s.Enforcer.UnreadTables {
		say("not read", Yellow, "%s: it is unknown whether rules there use the mark bits; compare them with mark in the Corefile", t)
	}
	if s.Away != nil {
		say("API server", Red, "away since %s, what was known then is in force: %s", s.Away.Since.Format(time.RFC3339), s.Away.Error)
	}
	for _, p := range s.Paths {
		say("queries lost", Red, "those of %s do not reach the agent: %s", p.Pod, p.Path)
	}
	for _, f := range s.Files {
		say("broken file", Red, "%s: %s (since %s; its last good content is in force)", f.File, f.Reason, f.Since.Format(time.RFC3339))
	}
	for _, p := range s.Problems {
		name, colour := "problem", Yellow
		if p.Opens {
			name, colour = "error", Red
		}
		say(name, colour, "%s: %s: %s %s", p.Object, p.Reason, p.Path, p.Message)
	}
}

// counts prints the counters.
func (s *Status) counts(say func(string, Colour, string, ...any)) {
	p := &s.Proxy
	say("answers", Plain, "%d from cache, %d forwarded, %d stale", p.CacheHits, p.CacheMisses, p.CacheStale)
	if p.Prefetches > 0 {
		say("prefetches", Plain, "%d", p.Prefetches)
	}
	if p.Followed > 0 {
		say("followed", Plain, "%d questions for names that allowed ones point at", p.Followed)
	}
	if n := p.ShedPod + p.ShedAll + p.ShedZone; n > 0 {
		say("too many", Yellow, "%d queries got SERVFAIL: %d of one pod under way, %d of all, %d of one forward (max_concurrent)", n, p.ShedPod, p.ShedAll, p.ShedZone)
	}
	for _, f := range s.Flows {
		if f.Count > 0 {
			tier := ""
			if f.Reason == string(audit.ReasonRule) {
				tier = " (" + f.Tier + ")"
			}
			say(f.Verdict, verdictColours[f.Verdict], "%d by reason %s%s", f.Count, f.Reason, tier)
		}
	}
	if s.Audit != nil {
		say("audit lines", Plain, "%d written, %d dropped", s.Audit.Written, s.Audit.Dropped)
	}
}
