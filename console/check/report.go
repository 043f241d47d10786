package check

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/print"
)

// Report is the result of a check, for programs.
type Report struct {
	Findings []Finding `json:"findings"`
	Answers  []Answer  `json:"answers,omitempty"`
	// Trial is of the policy that was tried.
	Trial *Trial `json:"trial,omitempty"`
	// Unchecked are the parts that were left out.
	Unchecked []Unchecked `json:"unchecked,omitempty"`
	Files     int         `json:"files"`
	// Cluster is the part of the cluster that was read: "namespace shop", "all namespaces".
	Cluster  string `json:"cluster,omitempty"`
	Policies int    `json:"policies"`
	// ClusterPolicies counts those of the whole cluster.
	ClusterPolicies int `json:"clusterPolicies,omitempty"`
	// NetworkPolicies counts the ordinary ones.
	NetworkPolicies int `json:"networkPolicies,omitempty"`
	Services        int `json:"services,omitempty"`
	Pods            int `json:"pods"` // and what makes pods
	// Skipped counts the objects of other kinds, by "apiVersion kind".
	Skipped  map[string]int `json:"skipped,omitempty"`
	Errors   int            `json:"errors"`
	Warnings int            `json:"warnings"`
}

// Report returns the findings and answers with their sums.
func (m *Manifests) Report(findings []Finding, answers []Answer) Report {
	r := Report{
		Findings: findings, Answers: answers, Files: len(m.Files), Cluster: m.scope(), Policies: m.policies(false), ClusterPolicies: m.policies(true),
		Services: len(m.Services), Pods: len(m.Pods), Skipped: m.Skipped,
	}
	if m.cluster != nil {
		r.Unchecked = slices.Concat(m.cluster.unchecked, m.byLog)
	}
	for _, p := range m.Policies {
		if p.network != nil {
			r.NetworkPolicies++
		}
	}
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	for _, f := range findings {
		if f.Severity == Error {
			r.Errors++
		} else {
			r.Warnings++
		}
	}
	return r
}

// Bad tells whether there is an error, or with strict a warning.
func (r Report) Bad(strict bool) bool { return r.Errors > 0 || strict && r.Warnings > 0 }

// Denied counts the questions that are answered no, and the connections that a policy on trial
// would deny and that pass today.
func (r Report) Denied() int {
	n := 0
	if r.Trial != nil {
		n = r.Trial.Denied()
	}
	for _, a := range r.Answers {
		if !a.Allowed() {
			n++
		}
	}
	return n
}

// Summary describes in one line the number of manifests and of findings.
func (r Report) Summary() string {
	skipped := 0
	for _, n := range r.Skipped {
		skipped += n
	}
	from := console.Plural(r.Files, "file")
	switch {
	case r.Cluster != "" && r.Files == 0:
		from = r.Cluster
	case r.Cluster != "":
		from += " with " + r.Cluster
	}
	text := fmt.Sprintf("%s, %s", from, console.Plural(r.Policies, "policy"))
	for _, more := range []struct {
		n    int
		what string
	}{{r.ClusterPolicies, "cluster policy"}, {r.NetworkPolicies, "NetworkPolicy"}, {r.Services, "Service"}} {
		if more.n > 0 {
			text += ", " + console.Plural(more.n, more.what)
		}
	}
	text += ", " + console.Plural(r.Pods, "pod")
	if skipped > 0 {
		kinds := slices.Sorted(maps.Keys(r.Skipped))
		text += fmt.Sprintf(", %s of other kinds skipped (%s)", console.Plural(skipped, "object"), strings.Join(kinds, ", "))
	}
	return fmt.Sprintf("%s: %s, %s", console.Safe(text), console.Plural(r.Errors, "error"), console.Plural(r.Warnings, "warning"))
}

// Write writes the report: as "" for people, a line for each finding and answer and
// the summary; as "json" or "yaml" whole.
func (r Report) Write(out io.Writer, format string) error {
	if format != "" {
		return (&print.Printer{Out: out, Format: format}).Value(r)
	}
	var text []byte
	for _, f := range r.Findings {
		text = fmt.Appendln(text, f)
	}
	for _, a := range r.Answers {
		text = fmt.Appendln(text, strings.Join(a.lines(), "\n"))
	}
	if r.Trial != nil {
		text = fmt.Appendln(text, strings.Join(r.Trial.lines(), "\n"))
	}
	for _, u := range r.Unchecked {
		text = fmt.Appendln(text, u)
	}
	if _, err := out.Write(fmt.Appendln(text, r.Summary())); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
