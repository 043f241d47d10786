package console

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pods prints the pods of all replies. agents is how many were asked: of more than
// one each row says which.
func (p *Printer) Pods(replies []Reply[PodRows], agents int) error {
	all := PodRows{Pods: []PodRow{}}
	for _, r := range replies {
		all.Pods = append(all.Pods, r.Value.Pods...)
	}
	slices.SortStableFunc(all.Pods, ComparePods)
	if !p.People() {
		return p.value(all)
	}
	t := Table{Head: []string{"NAMESPACE", "POD", "ENFORCEMENT", "POLICIES", "NP", "OPEN", "DENIED", "NOTES"}}
	wide := p.Format == FormatWide
	if wide {
		t.Head = []string{"NAMESPACE", "POD", "ENFORCEMENT", "POLICIES", "NP", "OPEN", "DENIED", "IPS", "WORKLOAD", "ON DENIED", "ON UNMATCHED", "UID", "NOTES"}
	}
	for i := range all.Pods {
		r := &all.Pods[i]
		row := append(cells(r.Namespace, r.Name), Cell{r.Enforcement, enforcementColours[r.Enforcement]}, Cell{Text: strings.Join(r.Policies, ",")},
			networkCell(r, wide), Cell{Text: strconv.Itoa(r.Open)}, counted(r.DeniedLately))
		if wide {
			row = append(row, cells(strings.Join(r.IPs, ","), r.Workload, r.Denied, r.Unmatched, r.UID)...)
		}
		notes := Cell{}
		if wide {
			notes = Cell{strings.Join(r.Notes, "; "), Yellow}
		} else if len(r.Notes) > 0 {
			notes = Cell{strconv.Itoa(len(r.Notes)) + " (-o wide)", Yellow}
		}
		t.Rows = append(t.Rows, append(row, notes))
	}
	return p.table(&t, agents, "no pods", func(i int) string { return all.Pods[i].Node })
}

// networkCell counts the NetworkPolicies of a pod that policies select; wide has their
// names.
func networkCell(r *PodRow, wide bool) Cell {
	switch {
	case r.Enforcement == "":
		return Cell{}
	case wide && len(r.NetworkPolicies) > 0:
		return Cell{Text: strings.Join(r.NetworkPolicies, ",")}
	}
	return Cell{Text: strconv.Itoa(len(r.NetworkPolicies))}
}

var enforcementColours = map[string]Colour{"Enforce": Green, "Audit": Yellow}

// counted is a number that is bad news unless it is 0.
func counted(n uint64) Cell {
	if n == 0 {
		return Cell{Text: "0"}
	}
	return Cell{strconv.FormatUint(n, 10), Red}
}

// Grants prints the open grants of all replies.
func (p *Printer) Grants(replies []Reply[GrantRows], agents int) error {
	all := GrantRows{Grants: []GrantRow{}}
	for _, r := range replies {
		all.Grants = append(all.Grants, r.Value.Grants...)
	}
	slices.SortStableFunc(all.Grants, CompareGrants)
	if !p.People() {
		return p.value(all)
	}
	t := Table{Head: []string{"NAMESPACE", "POD", "NAME", "ADDRESS", "PORTS", "FOR", "BY"}}
	wide := p.Format == FormatWide
	if wide {
		t.Head = []string{"NAMESPACE", "POD", "NAME", "ADDRESS", "PORTS", "FOR", "UNTIL", "UID", "BY"}
	}
	for i := range all.Grants {
		r := &all.Grants[i]
		row := cells(r.Namespace, r.Pod, r.Name, r.Address, r.Ports, span(r.Until.Sub(p.Now()))+p.byUse(r.Held))
		if wide {
			row = append(row, cells(r.Until.UTC().Format(time.RFC3339), r.UID)...)
		}
		t.Rows = append(t.Rows, append(row, Cell{Text: r.By}))
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
func (p *Printer) table(t *Table, agents int, none string, node func(int) string) error {
	if len(t.Rows) == 0 {
		_, err := p.Warn.Write([]byte(none + "\n"))
		return err
	}
	if agents > 1 {
		t.Head = append([]string{"NODE"}, t.Head...)
		for i := range t.Rows {
			t.Rows[i] = append([]Cell{{Text: node(i)}}, t.Rows[i]...)
		}
	}
	return t.print(p.Out, p.Colour)
}
