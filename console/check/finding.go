package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/namegate/namegate/console"
)

// Severity is how bad a finding is.
type Severity string

// Error is what does not work as it is written; Warning what works, and is hardly meant.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// The reasons of findings, in addition to those of policy.Problem. docs/check.md has all of them.
const (
	// Unreadable: a document cannot be read, and holds nothing.
	Unreadable = "Unreadable"
	// Duplicate: another object, match or port is equal.
	Duplicate = "Duplicate"
	// NoPolicy: there is nothing to check.
	NoPolicy = "NoPolicy"
	// SelectsNothing: the policy selects none of the pods that are given.
	SelectsNothing = "SelectsNothing"
	// EveryName: a pattern that is every name.
	EveryName = "EveryName"
	// PublicSuffix: below the pattern's fixed part any customer of a registry can have a name.
	PublicSuffix = "PublicSuffix"
	// Apex: a pattern's names, but not the name above them.
	Apex = "Apex"
	// ClusterNames: names of the cluster that no policy needs.
	ClusterNames = "ClusterNames"
	// DenyApex: a Deny rule has the names below a name, and none has the name itself.
	DenyApex = "DenyApex"
	// DenyOneLabel: a Deny rule has the names one label below a name, and none the deeper ones.
	DenyOneLabel = "DenyOneLabel"
	// DenyClusterNames: a Deny rule for every name has those of the cluster too.
	DenyClusterNames = "DenyClusterNames"
	// OtherResolvers: names are denied, and resolvers are open from which no agent sees them.
	OtherResolvers = "OtherResolvers"
	// SelectsResolver: the subject holds the cluster's resolver, whose queries are denied.
	SelectsResolver = "SelectsResolver"
	// NoSafeguard: a policy for nodes denies, enforces and has no safeguard.
	NoSafeguard = "NoSafeguard"
	// PriorityTie: policies of one priority whose order matters.
	PriorityTie = "PriorityTie"
	// ServicePort: a rule has other ports than the Service to which it leads.
	ServicePort = "ServicePort"
	// NoService: a name leads to a Service that the cluster does not have.
	NoService = "NoService"
	// NamedPort: no container has a port of the name.
	NamedPort = "NamedPort"
	// LeavesCluster: the name of a Service that leads out of the cluster.
	LeavesCluster = "LeavesCluster"
	// ServiceAddress: a network that is the address of a Service.
	ServiceAddress = "ServiceAddress"
	// AnotherEngine: another NetworkPolicy engine denies what the policy allows.
	AnotherEngine = "AnotherEngine"
	// Unresolved: nothing in the log resolved the name.
	Unresolved = "Unresolved"
	// SharedAddress: by the log, an address of the name is one of other names too.
	SharedAddress = "SharedAddress"
	// ServerNameIgnored: a rule requires the server name, and another opens the same without.
	ServerNameIgnored = "ServerNameIgnored"
	// ServerNameInCluster: a rule requires the server name of what is in the cluster, where it opens nothing.
	ServerNameInCluster = "ServerNameInCluster"
	// LogSilent: the log has no answers for the policy's pods or nodes.
	LogSilent = "LogSilent"
	// LogTooLong: not all of the log was compared.
	LogTooLong = "LogTooLong"
	// NotAsked: clients send no DNS query for such a name.
	NotAsked = "NotAsked"
	// MetadataService: a name leads to a cloud's metadata service, whose address the guard closes.
	MetadataService = "MetadataService"
	// ALabel: a label that begins with xn-- and is none.
	ALabel = "ALabel"
	// TrailingDot: a dot that says nothing.
	TrailingDot = "TrailingDot"
)

// Finding is one thing that is wrong, or looks so.
type Finding struct {
	File     string   `json:"file,omitempty"` // "" where all of them are meant
	Line     int      `json:"line,omitempty"`
	Severity Severity `json:"severity"`
	Reason   string   `json:"reason"`
	// Object is "policy namespace/name" or the like, "" where none can be told.
	Object  string `json:"object,omitempty"`
	Path    string `json:"path,omitempty"` // of the field in the object
	Message string `json:"message"`        // the error, and its correction
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
	return console.Safe(strings.Join(parts, ": "))
}

// sortFindings puts findings in the order of the files as they were given, and of
// their lines.
func sortFindings(findings []Finding, files []string) {
	rank := map[string]int{}
	for i, file := range files {
		rank[file] = i
	}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank[a.File], rank[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Message, b.Message))
	})
}
