package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
)

// Severity is how bad a finding is.
type Severity string

// Error is what does not work as it is written; Warning what works, and is hardly meant.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// The reasons of findings, in addition to those of policy.Problem.
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
	// Unresolved: nothing in the log resolved the name.
	Unresolved = "Unresolved"
	// SharedAddress: by the log, an address of the name is one of other names too.
	SharedAddress = "SharedAddress"
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

// Kind is one kind of finding.
type Kind struct {
	Reason   string
	Severity Severity
	Means    string
}

// Kinds returns every kind of finding, in the order of the documents.
func Kinds() []Kind {
	return []Kind{
		{Unreadable, Error, "an invalid document: YAML syntax, an unknown kind or field, a value of the wrong type"},
		{policy.ReasonInvalid, Error, "a policy or NetworkPolicy has an invalid selector and has no effect; the finding names the rules whose `Deny` or `Pass` is missing"},
		{policy.ReasonPartiallyInvalid, Error, "a part of a policy or NetworkPolicy is invalid, alone or with the other policies of its pods; an API server rejects most of these"},
		{policy.ReasonNoRoom, Error, "all cluster policies together are beyond a limit: rules of the policy match nothing as `Accept`, and everything as `Deny` or `Pass`; or rules with `Accept` do not count for a name that has too many"},
		{Duplicate, Error, "two policies, or two NetworkPolicies, have the same name, so one of them would be lost"},
		{Unreadable, Warning, "a Pod or Namespace is invalid"},
		{Duplicate, Warning, "another match or port of the policy covers this match or port"},
		{cnp.ReasonIngressNotEnforced, Warning, "a `ClusterNetworkPolicy` has rules for ingress, which agents do not enforce"},
		{SelectsNothing, Warning, "a policy of any kind selects no pod or node; without a cluster only if the manifests contain pods or nodes"},
		{policy.ReasonHostNetwork, Warning, "a policy selects a pod on the host network, where only policies for nodes hold"},
		{EveryName, Warning, "a pattern matches every name, or every name of some labels: `*.*`"},
		{PublicSuffix, Warning, "an accepted pattern has its wildcard at a [public suffix](#public-suffixes): `*.com`, `**.co.uk`, `*shop.com`, `*.github.io`, `shop.*`"},
		{Apex, Warning, "a pattern opens names below a domain, and no match in the namespace opens the domain itself"},
		{ClusterNames, Warning, "a pattern opens the whole cluster domain, or a name under the cluster domain cannot be a Service"},
		{DenyApex, Warning, "a `Deny` rule has the pattern `**.x`, and no `Deny` rule of a cluster policy denies `x` itself"},
		{DenyOneLabel, Warning, "a `Deny` rule has the pattern `*.x`, which is exactly one label, and no `Deny` rule of a cluster policy denies deeper names below `x`"},
		{DenyClusterNames, Warning, "a `Deny` rule for `*` or `**` also denies names under the cluster domain, `in-addr.arpa` or `ip6.arpa`"},
		{OtherResolvers, Warning, "a policy denies names, and its pods can reach resolvers outside the cluster on port 53 or 853, from which they get the names"},
		{SelectsResolver, Warning, "a cluster policy selects the pods of the cluster's resolver (label `k8s-app=kube-dns` or `app.kubernetes.io/name=coredns`) and denies their queries to other resolvers"},
		{NoSafeguard, Warning, "a policy for nodes enforces a `Deny` rule without a [safeguard](nodes.md#safeguard): a mistake in it lasts until it is changed"},
		{PriorityTie, Warning, "two cluster policies with the same tier and priority have rules with different actions for the same connections: `ClusterFQDNNetworkPolicy` comes before `ClusterNetworkPolicy`, then the name decides"},
		{ServicePort, Warning, "a rule has [no port of the Service](#ports-of-services) to which its name leads, or the port of a Service where the pods behind it have another"},
		{NoService, Warning, "with [the cluster](#in-the-cluster): a name leads to a Service that does not exist"},
		{LeavesCluster, Warning, "an accepted or passed name is of a Service with `externalName`, or of a headless one without selector, that leads [out of the cluster](corefile.md#names-of-the-cluster)"},
		{NamedPort, Warning, "a rule for pods has a [named port](#ports-of-services) that no container of these pods has"},
		{ServiceAddress, Warning, "a rule for networks has the [address of a Service](#ports-of-services), where rules have the addresses behind it"},
		{explain.PermissiveNetworkPolicy, Warning, "a `NetworkPolicy` [opens every address](networkpolicy.md#a-networkpolicy-that-voids-a-list) to pods of a policy, so that the names of the policy close nothing"},
		{policy.ReasonExternalIPs, Warning, "a Service has [external IPs](install.md#external-ips-of-services), which anyone who writes Services can claim"},
		{Unresolved, Warning, "with `--log`: [no client resolved](#names-in-the-audit-log) the name, or a name of the pattern"},
		{SharedAddress, Warning, "with `--log`: an address of the name [also answered for names](#names-in-the-audit-log) that the policies do not allow"},
		{LogSilent, Warning, "with `--log`: the log has no answer for the pods or nodes of a policy, so that it tells nothing about the names of the policy"},
		{LogTooLong, Warning, "with `--log`: the log has more names and addresses than `check` compares"},
		{NotAsked, Warning, "DNS is never queried for this name: an address, or a name of one label or short for one of the cluster (`db.shop.svc`), to which pods add a search suffix"},
		{MetadataService, Warning, "an accepted name leads to a cloud's metadata service (`metadata.google.internal`), whose address [the guard](corefile.md#rebind) closes"},
		{ALabel, Warning, "a label begins with `xn--` and is not a valid A-label"},
		{TrailingDot, Warning, "a trailing dot, which has no effect"},
		{NoPolicy, Warning, "the manifests, or the namespaces of the cluster, contain no policy"},
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
	Message string `json:"message"`        // the error, and its correction
}

// plain returns text without line breaks and control characters: some of it is from
// manifests, and so from their authors.
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
		return cmp.Or(cmp.Compare(rank[a.File], rank[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Message, b.Message))
	})
}
