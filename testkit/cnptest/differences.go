package cnptest

import (
	"net/netip"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// Difference is a connection that Namegate and the reference judge differently, on purpose.
// Shown has a case of each.
type Difference string

const (
	// Namegate leaves pods to the cluster's own engine that no policy of another kind selects.
	npAlone Difference = "NetworkPolicies alone"
	// A NetworkPolicy limits each direction for itself. The reference takes one for ingress
	// as a final Accept of egress, so that the Baseline tier is not asked.
	npIngress Difference = "NetworkPolicy for ingress"
	// A packet to the pod's own address never leaves the pod.
	ownAddress Difference = "own address"
	// In the Namespace tier a pod reaches itself through its Service, as no engine that
	// judges on the node denies it. The tiers of the standard judge it: see also DESIGN §3.
	ownService Difference = "own Service"
	// Names count for the address that was dialled. The reference sees the pod behind the
	// Service, and NPEP-133 leaves names of Services with a cluster IP out.
	serviceName Difference = "name of a Service"
	// The following are closed by Namegate, as the standard asks for of a rule that cannot be
	// read: as Accept it matches nothing, as Deny or Pass it denies everything. The reference
	// leaves the part out.
	emptyPeer   Difference = "peer without a field"
	badSelector Difference = "selector that cannot be read"
	// An API server takes domainNames with every action; the standard has them for Accept.
	// The reference denies addresses that it has seen, and lets the others through.
	deniedName Difference = "domainNames with Deny"
	passedName Difference = "domainNames with Pass"
	// No API server lets in the following; a folder of manifests may have them.
	unknownAction Difference = "unknown action"
	emptyPort     Difference = "protocol without a port"
	mappedNetwork Difference = "IPv4 network written as IPv6"
	namedNetwork  Difference = "named port of a network"
	emptyEgress   Difference = "NetworkPolicy with an empty list of rules"
)

// Known returns the difference by which a random connection may be judged, "" for none.
func (w *World) Known(f Flow, asked bool) Difference {
	selected, egress := 0, 0
	for _, np := range w.NPs {
		s, err := metav1.LabelSelectorAsSelector(&np.Spec.PodSelector)
		if err == nil && np.Namespace == f.From.Namespace && s.Matches(labels.Set(f.From.Labels)) {
			selected++
			if slices.Contains(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
				egress++
			}
		}
	}
	own := slices.Contains(f.From.IPs, f.Reached.Addr())
	switch service := f.Dialled != f.Reached; {
	case !asked:
		return npAlone
	case selected > 0 && egress == 0:
		return npIngress
	case own && !service:
		return ownAddress
	case own && egress > 0:
		return ownService
	case service && slices.ContainsFunc(w.Lookups, func(l Lookup) bool {
		return l.Pod == f.From && (l.Has(f.Dialled.Addr()) || l.Has(f.Reached.Addr()))
	}):
		return serviceName
	}
	return ""
}

// Shown is a connection that Namegate judges as Allowed, and the reference not.
type Shown struct {
	Difference Difference
	World      *World
	Flow       Flow
	Allowed    bool
}

// EachDifference returns a case of each difference. If the reference changes its mind, the case
// and its words go.
func EachDifference(t testing.TB) (out []Shown) {
	const (
		denyAll = "{action: Deny, to: [{networks: [0.0.0.0/0]}]}"
		own     = "10.1.0.1:80"
		db      = "10.1.0.2:80"
		outside = "198.51.100.1:80"
		service = "10.96.0.1:80"
	)
	for d, c := range map[Difference]struct {
		tier, egress     string
		np               string // spec of a NetworkPolicy
		dialled, reached string // the same where one is not given
		ours             bool
	}{
		npAlone:       {egress: "", np: "{podSelector: {}, policyTypes: [Egress]}", dialled: outside, ours: true},
		npIngress:     {tier: "Baseline", egress: denyAll, np: "{podSelector: {}, policyTypes: [Ingress], ingress: [{}]}", dialled: outside, ours: false},
		ownAddress:    {egress: denyAll, dialled: own, ours: true},
		ownService:    {egress: "{action: Pass, to: [{namespaces: {}}]}", np: "{podSelector: {}, policyTypes: [Egress]}", dialled: service, reached: own, ours: true},
		serviceName:   {egress: "{action: Accept, to: [{domainNames: [svc.test]}]}, " + denyAll, dialled: service, reached: db, ours: true},
		emptyPeer:     {egress: "{action: Deny, to: [{}]}", dialled: outside, ours: false},
		badSelector:   {egress: "{action: Deny, to: [{pods: {namespaceSelector: {}, podSelector: {matchExpressions: [{key: a, operator: Like}]}}}]}", dialled: outside, ours: false},
		deniedName:    {egress: "{action: Deny, to: [{domainNames: [b.test]}]}", dialled: outside, ours: false},
		passedName:    {egress: "{action: Pass, to: [{domainNames: [b.test]}]}", dialled: outside, ours: false},
		unknownAction: {egress: "{action: Log, to: [{networks: [0.0.0.0/0]}]}", dialled: outside, ours: false},
		emptyPort:     {egress: "{action: Accept, to: [{networks: [0.0.0.0/0]}], protocols: [{tcp: {}}]}, " + denyAll, dialled: outside, ours: false},
		mappedNetwork: {egress: "{action: Accept, to: [{networks: ['::ffff:198.51.100.0/120']}]}, " + denyAll, dialled: outside, ours: false},
		namedNetwork:  {egress: "{action: Accept, to: [{networks: [0.0.0.0/0]}], protocols: [{destinationNamedPort: http}]}, " + denyAll, dialled: db, ours: false},
		emptyEgress:   {egress: "{action: Pass, to: [{namespaces: {}}]}", np: "{podSelector: {}, policyTypes: [Egress], egress: []}", dialled: outside, ours: false},
	} {
		w := &World{Namespaces: map[string]map[string]string{"x": {}}, Pods: []*policy.Pod{
			{PodRef: policy.PodRef{Namespace: "x", Name: "web"}, IPs: []netip.Addr{netip.MustParseAddr("10.1.0.1")}},
			{PodRef: policy.PodRef{Namespace: "x", Name: "db"}, IPs: []netip.Addr{netip.MustParseAddr("10.1.0.2")}, Ports: []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: 80}}},
		}}
		if c.tier == "" {
			c.tier = "Admin"
		}
		o := &unstructured.Unstructured{}
		fatal.If(t, yaml.Unmarshal([]byte("{metadata: {name: p}, spec: {tier: "+c.tier+", priority: 1, subject: {namespaces: {}}, egress: ["+c.egress+"]}}"), &o.Object))
		w.CNPs = append(w.CNPs, o)
		if c.np != "" {
			np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "np"}}
			fatal.If(t, yaml.Unmarshal([]byte(c.np), &np.Spec))
			w.NPs = append(w.NPs, np)
		}
		w.Lookups = []Lookup{{w.Pods[0], "svc.test", []netip.Addr{netip.MustParseAddr("10.96.0.1")}}}
		f := Flow{From: w.Pods[0], Proto: policy.TCP, Dialled: netip.MustParseAddrPort(c.dialled)}
		if f.Reached = f.Dialled; c.reached != "" {
			f.Reached = netip.MustParseAddrPort(c.reached)
		}
		out = append(out, Shown{d, w, f, c.ours})
	}
	return out
}

// letIn are the problems of the reader with what an API server lets in: fields that it would
// prune, selectors, of which the schema has no checks, and the cases of the standard's words.
var letIn = []string{
	"unknown field", "the field is unknown", "label selector operator", "Invalid value",
	"domainNames works with Accept alone",
	"write exactly one of tcp, udp, sctp and destinationNamedPort", // which is written, and empty
}
