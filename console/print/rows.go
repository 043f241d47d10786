package print

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
)

// Pods prints the pods of all answers. agents is how many were asked: of more than
// one each row says which.
func (p *Printer) Pods(answers []console.PodRows, agents int) error {
	all := console.PodRows{Pods: []console.PodRow{}}
	for _, a := range answers {
		all.Pods = append(all.Pods, a.Pods...)
	}
	slices.SortStableFunc(all.Pods, func(a, b console.PodRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node), cmp.Compare(a.UID, b.UID))
	})
	if !p.People() {
		return p.Value(all)
	}
	t := table{Head: []string{"NAMESPACE", "POD", "ENFORCEMENT", "POLICIES", "NP", "OPEN", "DENIED", "NOTES"}}
	wide := p.Format == FormatWide
	if wide {
		t.Head = []string{"NAMESPACE", "POD", "ENFORCEMENT", "POLICIES", "NP", "OPEN", "DENIED", "IPS", "WORKLOAD", "ON DENIED", "ON UNMATCHED", "UID", "NOTES"}
	}
	for i := range all.Pods {
		r := &all.Pods[i]
		row := append(cells(r.Namespace, r.Name), cell{r.Enforcement, enforcementColours[r.Enforcement]}, cell{text: strings.Join(r.Policies, ",")},
			networkCell(r, wide), cell{text: strconv.Itoa(r.Open)}, counted(r.DeniedLately))
		if wide {
			row = append(row, cells(strings.Join(r.IPs, ","), r.Workload, r.Denied, r.Unmatched, r.UID)...)
		}
		notes := cell{}
		if wide {
			notes = cell{strings.Join(r.Notes, "; "), yellow}
		} else if len(r.Notes) > 0 {
			notes = cell{strconv.Itoa(len(r.Notes)) + " (-o wide)", yellow}
		}
		t.Rows = append(t.Rows, append(row, notes))
	}
	return p.table(&t, agents, "no pods", func(i int) string { return all.Pods[i].Node })
}

// networkCell counts the NetworkPolicies of a pod that policies select; wide has their
// names.
func networkCell(r *console.PodRow, wide bool) cell {
	switch {
	case r.Enforcement == "":
		return cell{}
	case wide && len(r.NetworkPolicies) > 0:
		return cell{text: strings.Join(r.NetworkPolicies, ",")}
	}
	return cell{text: strconv.Itoa(len(r.NetworkPolicies))}
}

var enforcementColours = map[string]colour{"Enforce": green, "Audit": yellow}

// counted is a number that is bad news unless it is 0.
func counted(n uint64) cell {
	if n == 0 {
		return cell{text: "0"}
	}
	return cell{strconv.FormatUint(n, 10), red}
}

// Grants prints the open grants of all answers.
func (p *Printer) Grants(answers []console.GrantRows, agents int) error {
	all := console.GrantRows{Grants: []console.GrantRow{}}
	for _, a := range answers {
		all.Grants = append(all.Grants, a.Grants...)
	}
	slices.SortStableFunc(all.Grants, func(a, b console.GrantRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Address, b.Address), cmp.Compare(a.Ports, b.Ports), cmp.Compare(a.Node, b.Node))
	})
	if !p.People() {
		return p.Value(all)
	}
	t := table{Head: []string{"NAMESPACE", "POD", "NAME", "ADDRESS", "PORTS", "FOR", "BY"}}
	wide := p.Format == FormatWide
	if wide {
		t.Head = []string{"NAMESPACE", "POD", "NAME", "ADDRESS", "PORTS", "FOR", "UNTIL", "UID", "BY"}
	}
	for i := range all.Grants {
		r := &all.Grants[i]
		row := cells(r.Namespace, r.Pod, r.Name, r.Address, r.Ports+explain.Requires(r.ServerName), span(r.Until.Sub(p.Now()))+p.byUse(r.Held))
		if wide {
			row = append(row, cells(r.Until.UTC().Format(time.RFC3339), r.UID)...)
		}
		t.Rows = append(t.Rows, append(row, cell{text: r.By}))
	}
	return p.table(&t, agents, "nothing is open", func(i int) string { return all.Grants[i].Node })
}

// byUse tells for how long only its use keeps an address open, "" where an answer does.
func (p *Printer) byUse(held time.Time) string {
	if held.IsZero() {
		return ""
	}
	return " (by use for " + span(p.Now().Sub(held)) + ")"
}

// span writes how long something lasts, to the second.
func span(d time.Duration) string { return max(d, 0).Round(time.Second).String() }

// table prints a table of rows, with the node of each in front where there are
// several agents, or that there is nothing.
func (p *Printer) table(t *table, agents int, none string, node func(int) string) error {
	if len(t.Rows) == 0 {
		_, err := p.Warn.Write([]byte(none + "\n"))
		return err
	}
	if agents > 1 {
		t.Head = append([]string{"NODE"}, t.Head...)
		for i := range t.Rows {
			t.Rows[i] = append([]cell{{text: node(i)}}, t.Rows[i]...)
		}
	}
	return t.print(p.Out, p.Colour)
}
