package main

import (
	"fmt"
	"strings"
	"time"
)

// auditLine is what the demo reads of one line of the audit log; docs/audit.md
// has the whole schema.
type auditLine struct {
	time, verdict, pod, name, qtype string
	answers, policies               []string
}

func readLine(m map[string]any) auditLine {
	l := auditLine{time: text(m["time"]), verdict: text(m["verdict"])}
	pod, question := object(m["pod"]), object(m["question"])
	l.pod = text(pod["namespace"]) + "/" + text(pod["name"])
	if text(m["kind"]) == "flow" {
		return l.flow(m)
	}
	l.name, l.qtype = text(question["name"]), text(question["type"])
	for _, a := range list(m["answers"]) {
		answer := object(a)
		s := text(answer["address"])
		for _, g := range list(answer["grants"]) {
			s += " " + text(object(g)["ports"]) + " until " + clock(text(object(g)["until"]))
		}
		l.answers = append(l.answers, s)
	}
	for _, p := range list(m["matches"]) {
		l.policies = append(l.policies, text(object(p)["policy"]))
	}
	return l
}

// flow is the rest of the line of a connection: its name, if it has one, and where it
// went.
func (l auditLine) flow(m map[string]any) auditLine {
	to := object(m["destination"])
	l.name, l.qtype = "no name", text(m["protocol"])
	for _, n := range list(m["names"]) {
		l.name = text(object(n)["name"])
		break
	}
	l.answers = []string{text(to["address"])}
	if port, ok := to["port"].(float64); ok {
		l.answers[0] += fmt.Sprintf(" port %.0f", port)
	}
	for _, p := range list(m["policies"]) {
		l.policies = append(l.policies, text(p))
	}
	return l
}

func text(v any) string { s, _ := v.(string); return s }

func object(v any) map[string]any { m, _ := v.(map[string]any); return m }

func list(v any) []any { l, _ := v.([]any); return l }

// clock is the time of day of a time as the log writes it.
func clock(s string) string {
	_, s, _ = strings.Cut(s, "T")
	s, _, _ = strings.Cut(s, ".")
	return s
}

// String is the line for people.
func (l auditLine) String() string {
	by := "no policy"
	if len(l.policies) > 0 {
		by = strings.Join(l.policies, " ")
	}
	return fmt.Sprintf("%s  %-9s  %-14s  %-16s %-4s  %-15s  %s", clock(l.time), l.verdict, l.pod, l.name, l.qtype, by, strings.Join(l.answers, " "))
}

// wantedLine is a decision of the tour that the log must hold.
type wantedLine struct{ verdict, pod, name, policy string }

var wanted = []wantedLine{
	{"allowed", "shop/" + client, listedName, "shop/allow-web"},
	{"unmatched", "shop/" + client, unlistedName, ""},
	{"allowed", "shop/" + neighbour, listedName, "shop/allow-web"},
	{"allowed", "shop/" + client, feedName, "shop/allow-feed"},
}

// String says what the line must say.
func (w wantedLine) String() string {
	if w.policy == "" {
		return w.verdict + " for " + w.pod
	}
	return w.verdict + " for " + w.pod + " by " + w.policy
}

func (w wantedLine) is(l auditLine) bool {
	return l.verdict == w.verdict && l.pod == w.pod && l.name == w.name && strings.Join(l.policies, " ") == w.policy
}

func anyLine(lines []auditLine, w wantedLine) bool {
	for _, l := range lines {
		if w.is(l) {
			return true
		}
	}
	return false
}

// missingOf names the decisions that no line has.
func missingOf(lines []auditLine) []string {
	var out []string
	for _, w := range wanted {
		if !anyLine(lines, w) {
			out = append(out, w.name+" "+w.String())
		}
	}
	return out
}

// auditLimit is how long the demo waits for the log, which is written behind
// the answers.
const auditLimit = 20 * time.Second

// waitForAudit returns the log's lines, as soon as all that are wanted are there.
func (t *tour) waitForAudit() ([]auditLine, error) {
	for until := time.Now().Add(auditLimit); ; time.Sleep(20 * time.Millisecond) {
		raw, err := t.agent.AuditLines()
		late := time.Now().After(until)
		if err != nil && late {
			return nil, err
		}
		var lines []auditLine
		for _, m := range raw {
			lines = append(lines, readLine(m))
		}
		if err == nil && len(missingOf(lines)) == 0 || late {
			return lines, nil
		}
	}
}
