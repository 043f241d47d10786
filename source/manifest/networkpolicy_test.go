package manifest

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func ptr[T any](v T) *T { return &v }

// TestDecodeNetworkPolicy: nothing is filled in that is not written.
func TestDecodeNetworkPolicy(t *testing.T) {
	objects, err := decode(t, "", "p.yaml", allowDB)
	fatal.If(t, err)
	want := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "curl-client"}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		Egress: []networkingv1.NetworkPolicyEgressRule{
			{
				To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"db"}}}}}},
				Ports: []networkingv1.NetworkPolicyPort{{Port: ptr(intstr.FromString("postgres"))},
					{Protocol: ptr(corev1.ProtocolUDP), Port: ptr(intstr.FromInt32(53)), EndPort: ptr(int32(54))}},
			},
			{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}}}}},
		},
	}
	diff.Error(t, want, objects[0].NetworkPolicy.Spec)
	objects, err = decode(t, "", "p.yaml", strings.Replace(allowDB, "  policyTypes: [Egress]\n", "", 1))
	fatal.If(t, err)
	if got := objects[0].NetworkPolicy.Spec.PolicyTypes; got != nil {
		t.Errorf("policyTypes %v", got)
	}
}

// TestNetworkPoliciesDocument: the example of the document is the one of the examples, and valid.
func TestNetworkPoliciesDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/start/networkpolicies.md")
	fatal.If(t, err)
	example, err := os.ReadFile("../../examples/networkpolicies.yaml")
	fatal.If(t, err)
	diff.Has(t, "```yaml\n"+string(example)+"```\n", string(text), "docs/start/networkpolicies.md does not have examples/networkpolicies.yaml")
	objects, err := decode(t, "", "p.yaml", string(example))
	fatal.If(t, err)
	diff.Equal(t, 2, len(objects), "NetworkPolicies")
	for _, o := range objects {
		diff.Empty(t, netpol.Read(o.NetworkPolicy).Problems)
	}
}

func networkPolicyNames(s State) string {
	var names []string
	for _, p := range s.Input.NetworkPolicies {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return strings.Join(names, " ")
}

// TestStateHasNetworkPolicies: once each, in the order of the files, and their
// namespaces have the label that every one has.
func TestStateHasNetworkPolicies(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.yaml", strings.Replace(allowDB, "name: db", "name: other", 1)+"---\n"+allowDB)
	write(t, dir, "a.yaml", allowDB)
	f := scanned(t, dir)
	f.scan(t.Context(), at(0))
	s := f.state()
	if got := networkPolicyNames(s); got != "shop/db shop/other" || s.Input.Namespaces["shop"][corev1.LabelMetadataName] != "shop" {
		t.Errorf("%s in %v", got, s.Input.Namespaces)
	}
	if len(s.Problems) != 1 || s.Problems[0].Object != "networkpolicy shop/db" || s.Problems[0].Reason != ReasonDuplicate {
		t.Errorf("problems %v", s.Problems)
	}
}

// TestChangesAreNotMadeInPlace: what was handed out stays as it was, and in force while its file is broken.
func TestChangesAreNotMadeInPlace(t *testing.T) {
	dir := t.TempDir()
	second := strings.Replace(allowDB, "name: db", "name: other", 1)
	write(t, dir, "p.yaml", allowDB+"---\n"+second)
	f := scanned(t, dir)
	f.scan(t.Context(), at(0))
	before := f.state().Input.NetworkPolicies
	write(t, dir, "q.yaml", podWeb)
	write(t, dir, "p.yaml", "# moved\n---\n"+strings.Replace(second, "port: postgres", "port: mysql", 1)+"---\n"+allowDB)
	f.scan(t.Context(), at(1))
	after := f.state().Input.NetworkPolicies
	if len(before) != 2 || len(after) != 2 {
		t.Fatalf("%v, then %v", before, after)
	}
	if before[1] == after[0] || after[0].Spec.Egress[0].Ports[0].Port.StrVal != "mysql" || before[1].Spec.Egress[0].Ports[0].Port.StrVal != "postgres" {
		t.Error("a change was overlooked, or made in what was handed out")
	}
	write(t, dir, "p.yaml", "apiVersion: [")
	f.scan(t.Context(), at(2))
	if kept := f.state().Input.NetworkPolicies; len(kept) != 2 || kept[0] != after[0] || kept[1] != after[1] {
		t.Errorf("a broken file changed %v", kept)
	}
}

// TestGKE: each of GKE's manifests opens what its lines "#: NAME PORTS…" say, with no change
// but that of the apiVersion.
func TestGKE(t *testing.T) {
	files, err := filepath.Glob("../../crds/testdata/gke/*.yaml")
	fatal.If(t, err)
	if len(files) < 15 {
		t.Fatalf("%d manifests", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			fatal.If(t, err)
			objects, err := decode(t, "", file, strings.Replace(string(text), "networking.gke.io/v1alpha1", "namegate.io/v1alpha1", 1))
			fatal.If(t, err)
			p := objects[0].Policy
			diff.Empty(t, fqdnnp.Validate(p))
			pod := policy.Pod{PodRef: policy.PodRef{Namespace: p.Namespace, Name: "a"}, Labels: map[string]string{"app": "client"}, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
			s := compile.New().Compile(compile.Input{Policies: []*v1alpha1.FQDNNetworkPolicy{p}, Pods: []policy.Pod{pod}})
			if len(s.Problems) > 0 || len(s.Views) != 1 || !s.Views[0].Enforced {
				t.Fatalf("%d views, problems %v", len(s.Views), s.Problems)
			}
			said := 0
			for line := range strings.Lines(string(text)) {
				words := strings.Fields(line)
				if words[0] != "#:" {
					continue
				}
				said++
				name, err := fqdn.ParseName(words[1])
				fatal.If(t, err)
				var got []string
				for _, o := range s.Views[0].Decide(name).Openings(0) {
					got = append(got, string(o.Ports))
				}
				slices.Sort(got)
				if len(got) == 0 {
					got = []string{"-"}
				}
				if !slices.Equal(got, words[2:]) {
					t.Errorf("%s opens %q, want %q", words[1], got, words[2:])
				}
			}
			if said == 0 {
				t.Error("the manifest says nothing")
			}
		})
	}
}
