package names

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime/pkg/client"
	api "sigs.k8s.io/network-policy-api/apis/v1beta1"
	"sigs.k8s.io/network-policy-api/conformance/utils/kubernetes"
)

// subject is a pod that the policies of a test select.
type subject struct {
	*testing.T
	*Environment
	test, podName string
	policies      int
}

// client starts the pod of a test, and returns when it is ready.
func (e *Environment) client(t *testing.T, test string) *subject {
	t.Helper()
	p := &subject{T: t, Environment: e, test: test}
	p.podName = p.start("0")
	return p
}

// another starts a further pod that the policies of the test select.
func (p *subject) another() *subject {
	p.Helper()
	q := *p
	q.podName = p.start("1")
	return &q
}

const testLabel = "network-policy-conformance-test"

func (p *subject) start(suffix string) string {
	p.Helper()
	name := p.test + "-" + suffix
	p.create(p.T, p.pod(name, map[string]string{testLabel: p.test}, "pause"))
	p.ready(p.T, name)
	return name
}

// The rules of the tests.

func accept(peers ...api.ClusterNetworkPolicyEgressPeer) api.ClusterNetworkPolicyEgressRule {
	return api.ClusterNetworkPolicyEgressRule{Name: "accept", Action: api.ClusterNetworkPolicyRuleActionAccept, To: peers}
}

func deny(peers ...api.ClusterNetworkPolicyEgressPeer) api.ClusterNetworkPolicyEgressRule {
	return api.ClusterNetworkPolicyEgressRule{Name: "deny", Action: api.ClusterNetworkPolicyRuleActionDeny, To: peers}
}

// named is a peer of names of the zone, or of whole names that end with a dot.
func (e *Environment) named(names ...string) (peer api.ClusterNetworkPolicyEgressPeer) {
	for _, n := range names {
		if n[len(n)-1] != '.' {
			n = e.name(n)
		}
		peer.DomainNames = append(peer.DomainNames, api.DomainName(n))
	}
	return peer
}

func networks(all ...string) (peer api.ClusterNetworkPolicyEgressPeer) {
	for _, n := range all {
		peer.Networks = append(peer.Networks, api.CIDR(n))
	}
	return peer
}

func network(addrs ...netip.Addr) (peer api.ClusterNetworkPolicyEgressPeer) {
	for _, a := range addrs {
		peer.Networks = append(peer.Networks, api.CIDR(netip.PrefixFrom(a, a.BitLen()).String()))
	}
	return peer
}

// everything denies what no rule before it accepts.
func everything() api.ClusterNetworkPolicyEgressRule { return deny(networks("0.0.0.0/0", "::/0")) }

func tcp(port int32) api.ClusterNetworkPolicyProtocol {
	return api.ClusterNetworkPolicyProtocol{TCP: &api.ClusterNetworkPolicyProtocolTCP{DestinationPort: &api.Port{Number: port}}}
}

func udp(port int32) api.ClusterNetworkPolicyProtocol {
	return api.ClusterNetworkPolicyProtocol{UDP: &api.ClusterNetworkPolicyProtocolUDP{DestinationPort: &api.Port{Number: port}}}
}

// dns accepts queries to the cluster's resolver.
func (e *Environment) dns() api.ClusterNetworkPolicyEgressRule {
	r := accept(api.ClusterNetworkPolicyEgressPeer{Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem}}})
	if len(e.Resolvers) > 0 {
		r.To = append(r.To, networks(e.Resolvers...))
	}
	r.Name, r.Protocols = "dns", []api.ClusterNetworkPolicyProtocol{udp(53), tcp(53)}
	return r
}

// policy creates one for the pods of the test, and returns its name.
func (p *subject) policy(tier api.Tier, priority int32, rules ...api.ClusterNetworkPolicyEgressRule) string {
	p.Helper()
	p.policies++
	typed := &api.ClusterNetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: api.GroupVersion.String(), Kind: "ClusterNetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("conformance-names-%s-%d", p.test, p.policies)},
		Spec: api.ClusterNetworkPolicySpec{Tier: tier, Priority: priority, Egress: rules, Subject: api.ClusterNetworkPolicySubject{Pods: &api.NamespacedPod{
			NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: Namespace}},
			PodSelector:       metav1.LabelSelector{MatchLabels: map[string]string{testLabel: p.test}},
		}}},
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	require.NoError(p, err)
	delete(fields, "status") // its list of conditions would be null
	p.create(p.T, &unstructured.Unstructured{Object: fields})
	return typed.Name
}

// change replaces the rules of a policy.
func (p *subject) change(policy string, rules ...api.ClusterNetworkPolicyEgressRule) {
	p.Helper()
	old := kubernetes.GetClusterNetworkPolicy(p.T, p.suite.Client, policy, p.suite.TimeoutConfig.GetTimeout)
	changed := old.DeepCopy()
	changed.Spec.Egress = rules
	kubernetes.PatchClusterNetworkPolicy(p.T, p.suite.Client, old, changed, p.suite.TimeoutConfig.GetTimeout)
}

// remove deletes a policy.
func (p *subject) remove(policy string) {
	p.Helper()
	old := kubernetes.GetClusterNetworkPolicy(p.T, p.suite.Client, policy, p.suite.TimeoutConfig.GetTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), p.suite.TimeoutConfig.DeleteTimeout)
	defer cancel()
	require.NoError(p, ctrl.IgnoreNotFound(p.suite.Client.Delete(ctx, old)))
}

// answer is the outcome of a DNS query.
type answer struct {
	Rcode   string
	Records []string
	Error   string
	Tries   int
}

// lookup asks the pod's resolver, or what args say, for a whole name.
func (p *subject) lookup(name, qtype string, args ...string) (answer, error) {
	p.Helper()
	a, err := run[answer](p.Environment, p.podName, append(append([]string{"lookup"}, args...), name, qtype)...)
	if a.Tries > 1 {
		p.Logf("pod %s sent the query for %s %s %q %d times: %+v", p.podName, name, qtype, args, a.Tries, a)
	}
	return a, err
}

// resolves looks a whole name up until there is an answer, and returns its addresses.
func (p *subject) resolves(name string) []netip.Addr {
	p.Helper()
	return p.resolvesType(name, "A")
}

func (p *subject) resolvesType(name, qtype string) (addrs []netip.Addr) {
	p.Helper()
	eventually(p.T, p.suite.TimeoutConfig.PokeTimeout, func() error {
		a, err := p.lookup(name, qtype)
		if err != nil {
			return err
		}
		addrs = nil
		for _, word := range a.Records {
			if addr, err := netip.ParseAddr(word); err == nil {
				addrs = append(addrs, addr)
			}
		}
		if len(addrs) == 0 {
			return fmt.Errorf("pod %s has no address of %s: %+v", p.podName, name, a)
		}
		return nil
	})
	return addrs
}

// enforced waits until the test's policies are in force: an address without a name is closed.
func (p *subject) enforced() {
	p.Helper()
	p.closed(p.at(nowhereAt))
}

// open demands that the pod connects to addresses.
func (p *subject) open(addrs ...netip.Addr) { p.Helper(); p.poke(p.Port, true, addrs...) }

// closed demands that it does not.
func (p *subject) closed(addrs ...netip.Addr) { p.Helper(); p.poke(p.Port, false, addrs...) }

func (p *subject) poke(port int32, connects bool, addrs ...netip.Addr) {
	p.Helper()
	for _, a := range addrs {
		kubernetes.PokeServer(p.T, p.suite.ClientSet, &p.suite.KubeConfig, Namespace, p.podName, "tcp", a.String(), port, p.suite.TimeoutConfig, connects)
	}
}

// opens looks a name of the zone up and demands that the answer is right and open.
func (p *subject) opens(labels string) {
	p.Helper()
	p.looksUp(labels)
	p.open(p.addresses(labels)...)
}

// opensNot looks a name of the zone up, which policies have no part in, and demands that
// its addresses are closed.
func (p *subject) opensNot(labels string) {
	p.Helper()
	p.looksUp(labels)
	p.closed(p.addresses(labels)...)
}

func (p *subject) looksUp(labels string) {
	p.Helper()
	p.same(p.addresses(labels), p.resolves(p.name(labels)))
}

// same demands addresses, in any order.
func (p *subject) same(want, got []netip.Addr) {
	p.Helper()
	slices.SortFunc(got, netip.Addr.Compare)
	require.Equal(p, fmt.Sprint(want), fmt.Sprint(got), "the addresses of an answer")
}
