package suggest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/netpolicyfor"
)

// Options extend the suggestion beyond the dialled names.
type Options struct {
	// Fold is how many names below one parent, on the same port, become a pattern; 0
	// folds nothing.
	Fold int
	// Deep folds names at any depth below a registrable domain into "**.", instead of
	// names of one parent into "*.".
	Deep bool
	// Unused opens these ports of the names that were asked for and never dialled; ""
	// leaves them out.
	Unused policy.PortSet
	// EveryProtocol allows connections of protocols that a policy has no word for, by
	// rules that open every protocol and port of the name.
	EveryProtocol bool
	// ServerNames requires the server name of names outside the cluster whose only port is TCP 443.
	ServerNames bool
	// NetworkPolicies are those of the cluster, beside which another engine may need some for Policies.
	NetworkPolicies []*networkingv1.NetworkPolicy
}

// WriteSelector is the label in the selector of a policy for which somebody has to
// write one.
const WriteSelector = "write-a-label-of"

// Suggestion is the set of policies that would have allowed the denied connections of a
// log.
type Suggestion struct {
	Parts []Part // sorted by namespace and selector
}

// Part is the suggestion for similar pods, or one cluster policy.
type Part struct {
	Namespace string
	// Selector is what Policies select, "app=cart,tier=front". It is "" for a pod
	// whose labels say nothing: its policies have the label WriteSelector in their
	// selector, which no pod has, until somebody writes another.
	Selector string
	Pods     []string // sorted names of the pods that lines speak of
	// First and Last are when connections were denied, or would have been.
	First, Last time.Time
	// Denied and WouldDeny are how many.
	Denied, WouldDeny uint64
	Policies          []v1alpha1.FQDNNetworkPolicy
	// NetworkPolicies are for another engine, if there is one, so that it does not deny what Policies allow.
	NetworkPolicies []*networkingv1.NetworkPolicy
	ClusterPolicy   *v1alpha1.ClusterFQDNNetworkPolicy
	NodePolicy      *v1alpha1.NodeNetworkPolicy
	head            string   // of a cluster policy: what it is for, or why there is none
	Left            []Left   // what the policies do not allow, sorted
	Notes           []string // what to know before they are applied
}

// Whole tells whether the policies allow all that was seen, as they are.
func (s Suggestion) Whole() bool {
	return !slices.ContainsFunc(s.Parts, func(p Part) bool { return len(p.Left) > 0 || p.unlabelled() != "" })
}

// Suggest returns the smallest policies that would have allowed the connections in the
// lines, and that do not exist yet. It does not change l. Workloads without a suggestion
// or a note are left out.
func (l *Log) Suggest(o Options) Suggestion {
	var s Suggestion
	keys := slices.SortedFunc(maps.Keys(l.workloads), func(a, b workloadKey) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.selector, b.selector), cmp.Compare(a.pod, b.pod))
	})
	names := l.baseNames(keys)
	for _, key := range keys {
		w := l.workloads[key]
		out := Part{
			Namespace: w.namespace, Selector: w.selector, Pods: slices.Sorted(maps.Keys(w.pods)),
			First: w.first, Last: w.last, Denied: w.denied, WouldDeny: w.would, Notes: w.notes(o),
		}
		for _, l := range w.left {
			if l.Kind != LeftProtocol || !o.EveryProtocol {
				out.Left = append(out.Left, *l)
			}
		}
		rules, checked := w.rules(o)
		out.Policies = w.policies(names[key], l.existing, rules)
		if checked {
			out.Notes = append(out.Notes, "serverName: Require: the destinations see the address of the node, and connections without a TLS server name are denied")
		}
		if len(out.Policies) > 0 {
			out.Notes = append(out.Notes, l.wider(w)...)
			out.Left = append(out.Left, w.overBounds(out.Policies)...)
			out.NetworkPolicies = w.forEngine(out.Policies, o.NetworkPolicies)
		}
		slices.SortFunc(out.Left, compareLeft)
		if len(out.Policies) > 0 || len(out.Left) > 0 || len(out.Notes) > 0 {
			s.Parts = append(s.Parts, out)
		}
	}
	return s
}

// allow returns the ports of each name or pattern to allow.
func (w *workload) allow(o Options) map[string]policy.PortSet {
	all := allNeeds{}
	for name, ports := range w.needs {
		for p := range ports {
			if p != anything || o.EveryProtocol {
				all.add(name, p)
			}
		}
	}
	if o.Fold > 0 {
		all = fold(all, o)
	}
	allowed := all.sets()
	if o.Unused != "" {
		for _, name := range w.unused() {
			allowed[name] = o.Unused
		}
	}
	maps.DeleteFunc(allowed, func(name string, ports policy.PortSet) bool { return needless(allowed, name, ports) })
	return allowed
}

// rules returns the rules that allow what was seen, and whether some require the server name.
func (w *workload) rules(o Options) (rules []Rule, checked bool) {
	plain, checkable := w.allow(o), map[string]policy.PortSet{}
	for name, ports := range plain {
		if o.ServerNames && ports == "tcp/443" && !strings.HasSuffix(name, clusterDomain) {
			checkable[name] = ports
			delete(plain, name)
		}
	}
	rules = Rules(plain)
	for _, r := range Rules(checkable) {
		r.ServerName = v1alpha1.ServerNameRequire
		rules = append(rules, r)
	}
	return rules, len(checkable) > 0
}

// clusterDomain is the default one: rules that require the server name open nothing below it.
const clusterDomain = ".cluster.local"

// set returns the ports as a port set.
func (n needs) set() policy.PortSet {
	var ranges []policy.PortRange
	for p := range n {
		ranges = append(ranges, policy.PortRange{Protocol: p.protocol, First: p.number, Last: p.number})
	}
	return policy.NewPortSet(ranges...)
}

// unused returns the names that were queried and never dialled, sorted: names with
// addresses, and names for which no upstream was asked, but not names that only a search
// path made.
func (w *workload) unused() []string {
	var names []string
	for name, how := range w.asked {
		if w.needs[name] == nil && (how&answered != 0 || !w.completed(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// completed tells whether a name is another wanted name and a suffix.
func (w *workload) completed(name string) bool {
	for i := range len(name) {
		if name[i] != '.' {
			continue
		}
		if _, asked := w.asked[name[:i]]; asked || w.needs[name[:i]] != nil {
			return true
		}
	}
	return false
}

// notes returns what to know of the workload, whatever its policies.
func (w *workload) notes(o Options) []string {
	var notes []string
	if unused := w.unused(); len(unused) > 0 && o.Unused == "" {
		notes = append(notes, fmt.Sprintf("asked for and never dialled, so left out (--unused PORTS writes them): %s", console.Listed(unused, maxNames)))
	}
	if len(w.audits) > 0 && len(w.needs) > 0 {
		ids := slices.Sorted(maps.Keys(w.audits))
		notes = append(notes, fmt.Sprintf("%s only audited these pods; what it allows opens nothing until its enforcement is Enforce: change it together with this",
			strings.Join(ids, ", ")))
	}
	if w.baseline && len(w.needs) > 0 {
		notes = append(notes, "a policy of the namespace replaces the Baseline tier, which denied some of this: what no policy of the namespace allows is denied then")
	}
	if len(w.guarded) > 0 {
		var guarded []string
		for _, name := range slices.Sorted(maps.Keys(w.guarded)) {
			guarded = append(guarded, fmt.Sprintf("%s (%s)", name, w.guarded[name]))
		}
		notes = append(notes, fmt.Sprintf("dialled where by default no name may lead, so that such connections are denied even so: %s; "+
			"the administrator can write `rebind allow SUFFIX CIDR` in the Corefile", console.Listed(guarded, maxNames)))
	}
	if len(w.late) > 0 {
		var late []string
		for _, name := range slices.Sorted(maps.Keys(w.late)) {
			late = append(late, fmt.Sprintf("%s after %v", name, w.late[name].Round(time.Second)))
		}
		notes = append(notes, fmt.Sprintf("dialled long after the question, when by default no address is open any more (%s): "+
			"such connections are denied even so; write ttl.graceSeconds, or let the program ask again", console.Listed(late, maxNames)))
	}
	return notes
}

// wider names the workloads whose pods the policies of w select too.
func (l *Log) wider(w *workload) []string {
	var others []string
	for _, o := range l.workloads {
		if o != w && o.namespace == w.namespace && len(w.labels) > 0 && labels.SelectorFromSet(w.labels).Matches(labels.Set(o.labels)) {
			others = append(others, o.selector)
		}
	}
	if len(others) == 0 {
		return nil
	}
	slices.Sort(others)
	return []string{"the selector covers pods of other workloads too: " + strings.Join(others, "; ")}
}

// overBounds returns what of the policies would open nothing, since they hold too much
// together.
func (w *workload) overBounds(policies []v1alpha1.FQDNNetworkPolicy) []Left {
	pod := policy.Pod{PodRef: policy.PodRef{Namespace: w.namespace, Name: "any"}, Labels: w.selected()}
	in := compile.Input{Pods: []policy.Pod{pod}}
	for i := range policies {
		in.Policies = append(in.Policies, &policies[i])
	}
	var left []Left
	for _, p := range compile.New().Compile(in).Problems {
		left = append(left, Left{Kind: LeftBound, Names: []string{p.Object + ": " + p.Path + ": " + p.Message}})
	}
	return left
}

// forEngine returns what another engine needs beside policies that can be applied.
func (w *workload) forEngine(policies []v1alpha1.FQDNNetworkPolicy, others []*networkingv1.NetworkPolicy) (needed []*networkingv1.NetworkPolicy) {
	for i := range policies {
		if w.selector != "" {
			needed = append(needed, netpolicyfor.Of(&policies[i], netpolicyfor.Services{}).Beside(others, netpolicyfor.Endpoint())...)
		}
	}
	return needed
}
