package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/audit"
)

// decision is what a line of the audit log says of a name or, of a connection, of its name.
type decision struct{ verdict, pod, name, policy string }

// wanted are the decisions of the tour that the log must hold.
var wanted = []decision{
	{"allowed", "shop/" + client, listedName, "shop/allow-web"},
	{"unmatched", "shop/" + client, unlistedName, ""},
	{"allowed", "shop/" + neighbour, listedName, "shop/allow-web"},
	{"allowed", "shop/" + client, feedName, "shop/allow-feed"},
}

func decisionOf(l audit.Line) decision {
	d := decision{verdict: l.Verdict, pod: l.Pod.Namespace + "/" + l.Pod.Name, name: "no name"}
	policies := l.Policies
	for _, m := range l.Matches {
		policies = append(policies, m.Policy)
	}
	d.policy = strings.Join(policies, " ")
	if l.Question != nil {
		d.name = l.Question.Name
	} else if len(l.Names) > 0 {
		d.name = l.Names[0].Name
	}
	return d
}

// clock is the form of a time of day.
const clock = "15:04:05"

// describe is a line for people.
func describe(l audit.Line) string {
	d, kind, to := decisionOf(l), l.Protocol, []string{}
	if d.policy == "" {
		d.policy = "no policy"
	}
	if l.Question != nil {
		kind = l.Question.Type
	}
	if l.Destination != nil {
		to = append(to, l.Destination.Address)
		if l.Destination.Port > 0 {
			to = append(to, fmt.Sprintf("port %d", l.Destination.Port))
		}
	}
	for _, a := range l.Answers {
		to = append(to, a.Address)
		for _, g := range a.Grants {
			to = append(to, g.Ports, "until", g.Until.UTC().Format(clock))
		}
	}
	return fmt.Sprintf("%s  %-9s  %-14s  %-16s %-4s  %-15s  %s", l.Time.UTC().Format(clock), d.verdict, d.pod, d.name, kind, d.policy, strings.Join(to, " "))
}

// missingOf names the decisions that no line has.
func missingOf(lines []audit.Line) (out []string) {
	for _, d := range wanted {
		if !slices.ContainsFunc(lines, func(l audit.Line) bool { return decisionOf(l) == d }) {
			out = append(out, fmt.Sprintf("%s %s for %s by %q", d.name, d.verdict, d.pod, d.policy))
		}
	}
	return out
}

// auditLimit is how long the demo waits for the log, which is written behind
// the answers.
const auditLimit = 20 * time.Second

// waitForAudit returns the log's lines, as soon as all that are wanted are there.
func (t *tour) waitForAudit() ([]audit.Line, error) {
	for until := time.Now().Add(auditLimit); ; time.Sleep(20 * time.Millisecond) {
		lines, err := t.auditLines()
		if late := time.Now().After(until); err == nil && len(missingOf(lines)) == 0 || late {
			return lines, err
		}
	}
}

func (t *tour) auditLines() (lines []audit.Line, err error) {
	f, err := os.Open(filepath.Join(t.dir, "audit.log"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	err = audit.Read(f, func(l audit.Line) error { lines = append(lines, l); return nil }, nil)
	return lines, err
}
