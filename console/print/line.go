package print

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
)

// The widths of the columns in front of a line's own words: lines arrive one by one, and
// are to be aligned.
const (
	nodeWidth    = 12
	podWidth     = 32
	verdictWidth = 10
)

// Line prints a line of the audit log as an agent sends it, with the node where several agents are asked.
func (p *Printer) Line(line []byte, several bool) error {
	parsed, bad := audit.ParseLine(line)
	if gap := (*audit.Gap)(nil); errors.As(bad, &gap) {
		_, err := fmt.Fprintf(p.Warn, "namegate: %d lines are lost: they came faster than they were taken\n", gap.Count)
		return err
	}
	var text []byte
	switch p.Format {
	case FormatJSON:
		text = line
	case FormatYAML:
		y, err := yaml.JSONToYAML(line)
		if err != nil {
			return fmt.Errorf("read the agent's line: %w", err)
		}
		text = append([]byte("---\n"), y...)
	default:
		if bad != nil {
			_, err := fmt.Fprintf(p.Warn, "namegate: a line is left out: %v\n", bad)
			return err
		}
		text = []byte(auditLine(&parsed, several, p.Colour))
	}
	_, err := p.Out.Write(text)
	return err
}

// auditLine is a line of the audit log for people.
func auditLine(l *audit.Line, node, colour bool) string {
	var b strings.Builder
	b.WriteString(l.Time.UTC().Format("15:04:05.000") + " ")
	if node {
		b.WriteString(padded(l.Node, nodeWidth))
	}
	word := padded(l.Verdict, verdictWidth)
	b.WriteString(verdictColours[l.Verdict].paint(strings.TrimRight(word, " "), colour))
	b.WriteString(word[len(strings.TrimRight(word, " ")):])
	b.WriteString(padded(subjectOf(l), podWidth))
	b.WriteString(LineText(l))
	b.WriteByte('\n')
	return b.String()
}

// LineText returns the words of a line behind its subject, as `namegate audit` prints them.
func LineText(l *audit.Line) string {
	if l.Kind == audit.KindFlow {
		return console.Safe(flowWords(l))
	}
	return console.Safe(dnsWords(l))
}

// subjectOf is the pod of a line, or the node with the user of the process.
func subjectOf(l *audit.Line) string {
	switch h := l.Host; {
	case h == nil:
		return l.Pod.Namespace + "/" + l.Pod.Name
	case h.UID == nil:
		return "node " + l.Node
	default:
		return fmt.Sprintf("node %s (uid %d)", l.Node, *h.UID)
	}
}

// padded is a word that ends in a space, filled up.
func padded(s string, width int) string { return fmt.Sprintf("%-*s ", width, console.Safe(s)) }

// dnsWords describes the question and its result.
func dnsWords(l *audit.Line) string {
	words := []string{l.Question.Type, l.Question.Name}
	if l.Would != "" && l.Would != l.Verdict {
		words = append(words, "(enforced: "+l.Would+")")
	}
	var open, closed []string
	for _, a := range l.Answers {
		switch {
		case a.Granted:
			open = append(open, a.Address)
		case a.Blocked != "":
			closed = append(closed, a.Address+" ("+a.Blocked+")")
		default:
			closed = append(closed, a.Address)
		}
	}
	if len(open) > 0 {
		words = append(words, openedWords[l.Renewed], console.Listed(open, 3))
	}
	if len(closed) > 0 {
		words = append(words, "not opened", console.Listed(closed, 3))
	}
	if len(l.Answers) == 0 && l.Rcode != "" {
		words = append(words, l.Rcode)
	}
	if len(l.Matches) > 0 {
		words = append(words, "by", l.Matches[0].Policy, l.Matches[0].Match)
	}
	if l.Limit != "" {
		words = append(words, "limited by", limitWords[l.Limit])
	}
	if l.Error != "" {
		words = append(words, "error:", l.Error)
	}
	return strings.Join(words, " ")
}

// limitWords are the fields that set the limits.
var limitWords = map[string]string{
	policy.LimitTypes.String():  "dns.types",
	policy.LimitLabels.String(): "dns.maxLabels",
	policy.LimitRate.String():   "dns.maxQueryRate",

	policy.LimitEncrypted.String(): "dns.encrypted",
	policy.LimitGrants.String():    "grants_per_pod",
	policy.LimitOpenings.String():  "64 openings of a name",
}

// openedWords say by the reason of the verdict renewed that addresses are open.
var openedWords = map[string]string{
	"":                 "opened",
	audit.ByAnswer:     "kept open by the answer",
	audit.ByConnection: "kept open by connections",
	audit.Unanswered:   "kept open without an answer",
}

// flowWords says where from, where to, under which name, how often and why.
func flowWords(l *audit.Line) string {
	words := []string{l.Protocol}
	if s := l.Source; s != nil {
		words = append(words, "from", s.Address)
		if s.Pod != "" {
			words = append(words, "("+s.Pod+")")
		}
		words = append(words, "to")
	}
	words = append(words, hostPort(l.Destination.Address, l.Destination.Port))
	var names []string
	for _, n := range l.Names {
		name := n.Name
		if n.Pod != "" {
			name += " (asked by " + n.Pod + ")"
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		words = append(words, console.Listed(names, 3))
	}
	words = append(words, cmp.Or(reasonWords[l.Reason], "- "+string(l.Reason)))
	if l.ServerName != "" {
		words = append(words, fmt.Sprintf("(but %q)", l.ServerName))
	}
	switch {
	case l.Tier == "":
	case l.Reason == audit.ReasonServerName, l.Reason == audit.ReasonLimit, l.Reason == audit.ReasonUnchecked:
		words = append(words, strings.TrimSpace("- by "+l.Policy+" "+l.Rule))
	case l.Policy == explain.Hidden(l.Tier):
		words = append(words[:len(words)-1], "- by "+l.Policy)
	case l.Host != nil:
		words = append(words[:len(words)-1], "- by", explain.PolicyName(l.Tier, l.Policy), l.Rule)
		if l.Traffic != "" && l.Traffic != policy.Local.String() {
			words = append(words, "("+l.Traffic+")")
		}
	case l.Tier == policy.Namespace.String():
		words = append(words[:len(words)-1], "- by", l.Policy, l.Rule)
	default:
		words = append(words, "("+l.Tier+")", l.Policy, l.Rule)
	}
	if l.Count > 1 {
		words = append(words, fmt.Sprintf("(%d times, last %s)", l.Count, l.Last.UTC().Format("15:04:05.000")))
	}
	return strings.Join(words, " ")
}

// reasonWords are the reasons of flows for people.
var reasonWords = map[audit.FlowReason]string{
	audit.ReasonRule:       "- by a rule of a cluster policy",
	audit.ReasonServerName: "- it names no server that the rule allows",
	audit.ReasonLimit:      "- the agent checks too many connections",
	audit.ReasonUnchecked:  "- no agent checked its server name",
	audit.ReasonPorts:      "- allowed on other ports",
	audit.ReasonTranslated: "- a Service leads the address elsewhere, where names do not count",
	audit.ReasonExpired:    "- the name was asked for too long ago",
	audit.ReasonBlocked:    "- blocked by the guard against rebinding",
	audit.ReasonUnmatched:  "- no match covers the name",
	audit.ReasonAnother:    "- this pod never asked for the name",
	audit.ReasonIsolated:   "- no NetworkPolicy allows it",
	audit.ReasonAddress:    "- never resolved here: dialled by address",
}
