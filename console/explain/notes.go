package explain

import (
	"fmt"
	"slices"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/policy/fqdn"
)

func (in *inquiry) note(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(in.said.Notes, s) {
		in.said.Notes = append(in.said.Notes, s)
	}
}

// maxFlows bounds how much of what was denied is shown.
const maxFlows = 5

// flows lists what was denied lately of what is asked for, on any port.
func (in *inquiry) flows() {
	for i := range in.f.Flows {
		f := &in.f.Flows[i]
		if !in.concerns(f) || len(in.said.Flows) == maxFlows {
			continue
		}
		row := Flow{
			Time: f.Time, Last: f.Last, Verdict: f.Verdict.String(), Protocol: protocolWord(f.Protocol),
			Address: f.Dialled.Addr().String(), Port: f.Dialled.Port(), Reason: string(f.Reason), ServerName: f.ServerName, Count: f.Count,
		}
		if f.Rule != nil {
			row.By = in.ruleText(f.Rule)
		}
		for _, n := range f.Names {
			row.Names = append(row.Names, n.Name.String())
		}
		in.said.Flows = append(in.said.Flows, row)
	}
}

// concerns tells whether a denied flow is one to the target, or from the source.
func (in *inquiry) concerns(f *audit.Flow) bool {
	if in.from != nil || f.Source.IsValid() {
		return in.from != nil && slices.Contains(in.from.Addrs, f.Source)
	}
	if in.to.Addr.IsValid() {
		return f.Dialled.Addr() == in.to.Addr
	}
	return slices.ContainsFunc(f.Names, func(n audit.FlowName) bool { return n.Name == in.to.Name })
}

// notes says what else bears on the answer.
func (in *inquiry) notes() {
	f := in.f
	if f.Failing != "" {
		in.note("the latest policies are not in force: %s; `namegate status` says more", f.Failing)
	}
	for _, t := range f.Trouble {
		in.note("%s", t)
	}
	for _, p := range f.Problems {
		path := p.Path
		if path != "" {
			path += ": "
		}
		in.note("%s: %s: %s%s", p.Object, p.Reason, path, p.Message)
	}
	if in.from != nil {
		return
	}
	in.permissive()
	if f.Inside != "" && in.said.Verdict != Elsewhere {
		in.note("%s is the address of a %s", in.to.Addr, f.Inside)
	}
	if in.to.Addr.IsValid() || f.Domain == "" {
		return
	}
	switch n := in.to.Name; {
	case in.completed() != "": // that was said
	case f.View != nil && n.HasSuffix(f.Domain):
		in.note("names under %s always resolve; their addresses open only where a match covers them, or a NetworkPolicy allows what they lead to", f.Domain)
	case n.NumLabels() == 1:
		in.note("a name of one label is completed by the pod's search list; in the cluster it may be %s.%s.svc.%s: ask with that", n, f.Pod.Namespace, f.Domain)
	}
}

// list writes names in a sentence, at most four.
func list(names []fqdn.Name) string {
	var out []string
	for _, n := range names {
		out = append(out, n.String())
	}
	return console.Listed(out, 4)
}
