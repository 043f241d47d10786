package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/namegate/namegate/policy"
)

// Severity is how bad a finding is.
type Severity string

// Error is what does not work as it is written; Warning what works, and is hardly meant.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// The reasons of findings, beside those of policy.Problem.
const (
	// Unreadable: a document cannot be read, and holds nothing.
	Unreadable = "Unreadable"
	// Duplicate: an object, a match or a port stands elsewhere too.
	Duplicate = "Duplicate"
	// NoPolicy: there is nothing to check.
	NoPolicy = "NoPolicy"
	// SelectsNothing: the policy selects none of the pods that are given.
	SelectsNothing = "SelectsNothing"
	// EveryName: a pattern that is every name.
	EveryName = "EveryName"
	// PublicSuffix: below the pattern's fixed part anybody can have a name.
	PublicSuffix = "PublicSuffix"
	// Apex: a pattern's names, but not the name above them.
	Apex = "Apex"
	// ClusterNames: names of the cluster that no policy needs.
	ClusterNames = "ClusterNames"
	// NotAsked: nobody asks DNS for such a name.
	NotAsked = "NotAsked"
	// ALabel: a label that begins with xn-- and is none.
	ALabel = "ALabel"
	// TrailingDot: a dot that says nothing.
	TrailingDot = "TrailingDot"
)

// Kind is one kind of finding.
type Kind struct {
	Reason   string
	Severity Severity
	Means    string
}

// Kinds returns every kind of finding, in the order of the documents.
func Kinds() []Kind {
	return []Kind{
		{Unreadable, Error, "a document cannot be read: its YAML, its kind, a field that does not exist, a value of another type"},
		{policy.ReasonInvalid, Error, "a policy or NetworkPolicy cannot work at all: its selector cannot be read"},
		{policy.ReasonPartiallyInvalid, Error, "a part of a policy or NetworkPolicy cannot work, alone or beside the other policies of its pods; an API server refuses most of these"},
		{Duplicate, Error, "two policies, or two NetworkPolicies, have one name, so that one of them would be lost"},
		{Unreadable, Warning, "a Pod or Namespace cannot be read"},
		{Duplicate, Warning, "a match or a port is covered by another one of the policy"},
		{SelectsNothing, Warning, "a policy selects none of the pods in these manifests; only where there are some"},
		{policy.ReasonHostNetwork, Warning, "a policy selects a pod on the host network, for which it cannot hold"},
		{EveryName, Warning, "a pattern is every name"},
		{PublicSuffix, Warning, "a pattern is below a public suffix (`*.com`, `**.co.uk`, `*.s3.amazonaws.com`), where anybody can have a name"},
		{Apex, Warning, "a pattern opens names below a domain, and nothing in the namespace opens the domain itself"},
		{ClusterNames, Warning, "a pattern opens all of the cluster, or a name under the cluster domain can be no Service"},
		{NotAsked, Warning, "nobody asks DNS for it: an address, or a name of one label, to which pods add a search suffix"},
		{ALabel, Warning, "a label begins with `xn--` and stands for no Unicode label"},
		{TrailingDot, Warning, "a dot at the end, which says nothing"},
		{NoPolicy, Warning, "there is no policy in all of the manifests"},
	}
}

// Finding is one thing that is wrong, or looks so.
type Finding struct {
	File     string   `json:"file,omitempty"` // "" where all of them are meant
	Line     int      `json:"line,omitempty"`
	Severity Severity `json:"severity"`
	Reason   string   `json:"reason"`
	// Object is "policy namespace/name" or the like, "" where none can be told.
	Object  string `json:"object,omitempty"`
	Path    string `json:"path,omitempty"` // of the field in the object
	Message string `json:"message"`        // what is wrong, and what to write instead
}

// plain returns text that stays in its line and leaves a terminal as it is: some of it
// is from manifests, and so from whoever wrote them.
func plain(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) && r != utf8.RuneError {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// String returns the finding as compilers do: "file:line: severity: object: path:
// message".
func (f Finding) String() string {
	at, parts := f.File, []string{}
	if f.Line > 0 {
		at = fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	for _, part := range []string{at, string(f.Severity), f.Object, f.Path, f.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return plain(strings.Join(parts, ": "))
}

// sortFindings puts findings in the order of the files as they were given, and of
// their lines.
func sortFindings(findings []Finding, files []string) {
	rank := map[string]int{}
	for i, file := range files {
		rank[file] = i
	}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank[a.File], rank[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Message, b.Message))
	})
}
