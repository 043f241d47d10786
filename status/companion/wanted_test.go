package companion

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/statustest"
)

const companionText = `egress:
- ports:
  - port: 53
    protocol: UDP
  - port: 53
    protocol: TCP
  to:
  - ipBlock:
      cidr: 169.254.20.53/32
  - ipBlock:
      cidr: fd5c:7a1e:93b4::53/128
podSelector:
  matchExpressions:
  - key: app
    operator: In
    values:
    - cart
  - key: tier
    operator: In
    values:
    - front
policyTypes:
- Egress
`

func TestCompanion(t *testing.T) {
	p := statustest.Selecting(statustest.Policy("shop", "web"), map[string]string{"app": "cart"})
	got, crowded := wanted(statustest.ByID(p), []*networkingv1.NetworkPolicy{statustest.Limit("shop", "deny", map[string]string{"tier": "front"})}, statustest.Endpoint, noPorts)
	if len(got) != 1 || len(crowded) != 0 {
		t.Fatalf("%v, %v", got, crowded)
	}
	c := got[0]
	text, err := yaml.Marshal(c.Spec)
	fatal.If(t, err)
	if diff := cmp.Diff(companionText, string(text)); diff != "" {
		t.Error(diff)
	}
	owner := metav1.GetControllerOf(c)
	if owner == nil || owner.UID != p.UID || owner.Name != "web" || owner.APIVersion != "namegate.io/v1alpha1" || owner.BlockOwnerDeletion != nil || !isCompanion(c) {
		t.Errorf("owner %+v", owner)
	}
	if c.Namespace != "shop" || c.Labels[ManagedByLabel] != ManagedBy || c.Annotations[PolicyAnnotation] != "web" || len(c.Name) > 40 {
		t.Errorf("%+v", c.ObjectMeta)
	}
	if errs := validation.IsDNS1123Subdomain(c.Name); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestWantedCompanions(t *testing.T) {
	cart, front := map[string]string{"app": "cart"}, map[string]string{"app": "front"}
	with := func(n *networkingv1.NetworkPolicy, change func(*networkingv1.NetworkPolicySpec)) *networkingv1.NetworkPolicy {
		change(&n.Spec)
		return n
	}
	types := func(t ...networkingv1.PolicyType) func(*networkingv1.NetworkPolicySpec) {
		return func(s *networkingv1.NetworkPolicySpec) { s.PolicyTypes = t }
	}
	deleting := func(o *metav1.ObjectMeta) { o.DeletionTimestamp = &metav1.Time{Time: statustest.At(0)} }
	goingPolicy, going := statustest.Policy("shop", "web"), statustest.Limit("shop", "deny", nil)
	deleting(&goingPolicy.ObjectMeta)
	deleting(&going.ObjectMeta)
	companion := newCompanion(statustest.Policy("shop", "web"), &metav1.LabelSelector{}, statustest.Endpoint)
	unlabelled := companion.DeepCopy()
	unlabelled.Labels = nil
	copied := companion.DeepCopy()
	copied.Name = "mine"
	all := types(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)
	for name, c := range map[string]struct {
		policies []*v1alpha1.FQDNNetworkPolicy
		others   []*networkingv1.NetworkPolicy
		want     int
	}{
		"a pair":                          {[]*v1alpha1.FQDNNetworkPolicy{statustest.Policy("shop", "web")}, []*networkingv1.NetworkPolicy{statustest.Limit("shop", "deny", nil)}, 1},
		"another namespace":               {[]*v1alpha1.FQDNNetworkPolicy{statustest.Policy("shop", "web")}, []*networkingv1.NetworkPolicy{statustest.Limit("bank", "deny", nil)}, 0},
		"no other":                        {[]*v1alpha1.FQDNNetworkPolicy{statustest.Policy("shop", "web")}, nil, 0},
		"no policy":                       {nil, []*networkingv1.NetworkPolicy{statustest.Limit("shop", "deny", nil)}, 0},
		"no pod in common":                {[]*v1alpha1.FQDNNetworkPolicy{statustest.Selecting(statustest.Policy("shop", "web"), cart)}, []*networkingv1.NetworkPolicy{statustest.Limit("shop", "deny", front)}, 0},
		"a selector that says nothing":    {[]*v1alpha1.FQDNNetworkPolicy{statustest.Broken("shop", "web")}, []*networkingv1.NetworkPolicy{statustest.Limit("shop", "deny", nil)}, 0},
		"ingress alone":                   {[]*v1alpha1.FQDNNetworkPolicy{statustest.Policy("shop", "web")}, []*networkingv1.NetworkPolicy{with(statustest.Limit("shop", "deny", nil), types(networkingv1.PolicyTypeIngress))}, 0},
		"both directions":                 {[]*v1alpha1.FQDNNetworkPolicy{statustest.Policy("shop", "web")}, []*networkingv1.NetworkPolicy{with(statustest.Limit("shop", "deny", nil), all)}, 1},
		"types of old, without egress":    {[]*v1alpha1.FQDNNetworkPolicy{statustest.Policy("shop", "web")}, []*networkingv1.NetworkPolicy{with(statustest.Limit("shop", "deny", nil), types())}, 0},
		"egress to everything":            {[]*v1alpha1.FQDNNetworkPolicy{statustest.Policy("shop", "web")}, []*networkingv1.NetworkPolicy{with(statustest.Limit("shop", "deny", nil), func(s *networkingv1.NetworkPolicySpec) { s.Egress = []networkingv1.NetworkPolicyEgressRule{{}} })}, 0},
		"the policy goes":                 {[]*v1alpha1.FQDNNetworkPolicy{goingPolicy}, []*networkingv1.NetworkPolicy{statustest.Limit("shop", "deny", nil)}, 0},
		"the other goes":                  {[]*v1alpha1.FQDNNetworkPolicy{statustest.Policy("shop", "web")}, []*networkingv1.NetworkPolicy{going}, 0},
		"a companion is none's reason":    {[]*v1alpha1.FQDNNetworkPolicy{statustest.Policy("shop", "web")}, []*networkingv1.NetworkPolicy{companion, unlabelled}, 0},
		"but a copy under another name":   {[]*v1alpha1.FQDNNetworkPolicy{statustest.Policy("shop", "web")}, []*networkingv1.NetworkPolicy{copied}, 1},
		"pairs of one selector are one":   {[]*v1alpha1.FQDNNetworkPolicy{statustest.Selecting(statustest.Policy("shop", "web"), cart)}, []*networkingv1.NetworkPolicy{statustest.Limit("shop", "deny", nil), statustest.Limit("shop", "dns", nil), statustest.Limit("shop", "cart", cart)}, 1},
		"each policy has its own":         {[]*v1alpha1.FQDNNetworkPolicy{statustest.Policy("shop", "web"), statustest.Policy("shop", "api")}, []*networkingv1.NetworkPolicy{statustest.Limit("shop", "deny", nil)}, 2},
		"each selector of others has one": {[]*v1alpha1.FQDNNetworkPolicy{statustest.Policy("shop", "web")}, []*networkingv1.NetworkPolicy{statustest.Limit("shop", "a", cart), statustest.Limit("shop", "b", front)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got, crowded := wanted(statustest.ByID(c.policies...), c.others, statustest.Endpoint, noPorts)
			if len(got) != c.want || len(crowded) > 0 {
				t.Errorf("%d companions, want %d", len(got), c.want)
			}
			slices.Reverse(c.others)
			again, _ := wanted(statustest.ByID(c.policies...), c.others, statustest.Endpoint, noPorts)
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("depends on the order: %s", diff)
			}
			if none, _ := wanted(statustest.ByID(c.policies...), c.others, nil, noPorts); len(none) > 0 {
				t.Error("without an endpoint a companion would open every address")
			}
		})
	}
}

// TestCompanionsWithPorts: the exported function, as a test engine uses it.
func TestCompanionsWithPorts(t *testing.T) {
	audit := statustest.WithPort(statustest.Policy("shop", "web"), 443)
	audit.Spec.Enforcement = v1alpha1.EnforcementAudit
	services := compile.NewNamedServices(statustest.ClusterLocal, []*policy.Service{statustest.Service("db", policy.ServicePort{Port: 443, Target: 8443}, policy.ServicePort{Port: 443, TargetName: "sql"})})
	for name, c := range map[string]struct {
		policy *v1alpha1.FQDNNetworkPolicy
		open   Ports
		rules  int // of each companion
		ports  int // of the second
	}{
		"open":               {statustest.WithPort(statustest.Policy("shop", "web"), 443), PortsAlways, 2, 1},
		"every port":         {statustest.Policy("shop", "web"), PortsAlways, 2, 0},
		"not opted in":       {statustest.WithPort(statustest.Policy("shop", "web"), 443), PortsNever, 1, 0},
		"audited":            {audit, PortsAlways, 1, 0},
		"of DNS alone":       {statustest.Annotated(statustest.WithPort(statustest.Policy("shop", "web"), 443), "DNS"), PortsAlways, 1, 0},
		"of ports":           {statustest.Annotated(statustest.WithPort(statustest.Policy("shop", "web"), 443), "Ports"), PortsAlways, 2, 1},
		"of an unknown word": {statustest.Annotated(statustest.WithPort(statustest.Policy("shop", "web"), 443), "All"), PortsAlways, 1, 0},
		"of none":            {statustest.Annotated(statustest.WithPort(statustest.Policy("shop", "web"), 443), "None"), PortsAlways, 0, 0},
		"of Services":        {statustest.WithName(statustest.WithPort(statustest.Policy("shop", "web"), 443), "db.shop.svc.cluster.local"), PortsAlways, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			others := []*networkingv1.NetworkPolicy{statustest.Limit("shop", "a", map[string]string{"app": "a"}), statustest.Limit("shop", "b", map[string]string{"app": "b"})}
			got := Companions([]v1alpha1.FQDNNetworkPolicy{*c.policy}, others, services, statustest.Endpoint, c.open)
			if want := 2 * min(c.rules, 1); len(got) != want {
				t.Fatalf("%d companions, want %d", len(got), want)
			}
			for _, n := range got {
				if len(n.Spec.Egress) != c.rules || opensPorts(n) != (c.rules == 2) {
					t.Fatalf("%d rules, want %d", len(n.Spec.Egress), c.rules)
				}
				if len(n.Spec.Egress[0].To) != 2 || len(n.Spec.Egress[0].Ports) != 2 {
					t.Errorf("the endpoint: %+v", n.Spec.Egress[0])
				}
				if c.rules == 2 && (len(n.Spec.Egress[1].To) != 0 || len(n.Spec.Egress[1].Ports) != c.ports) {
					t.Errorf("the ports: %+v", n.Spec.Egress[1])
				}
			}
		})
	}
}

// TestPortsAreAsked for each companion, and for no policy without.
func TestPortsAreAsked(t *testing.T) {
	var asked []string
	others := []*networkingv1.NetworkPolicy{statustest.Limit("shop", "a", map[string]string{"app": "a"}), statustest.Limit("shop", "b", map[string]string{"app": "b"})}
	wanted(statustest.ByID(statustest.Policy("shop", "web"), statustest.Policy("bank", "web"), statustest.Annotated(statustest.Policy("shop", "no"), "None")), others, statustest.Endpoint, func(p *v1alpha1.FQDNNetworkPolicy, _ *networkingv1.NetworkPolicy) (none compile.PodPorts) {
		asked = append(asked, p.Namespace+"/"+p.Name)
		return none
	})
	if !slices.Equal(asked, []string{"shop/web", "shop/web"}) {
		t.Errorf("%q", asked)
	}
}

// TestCompanionsAreBounded: and the policies that go without are named.
func TestCompanionsAreBounded(t *testing.T) {
	var others []*networkingv1.NetworkPolicy
	for i := range maxCompanions {
		others = append(others, statustest.Limit("shop", fmt.Sprint("np-", i), map[string]string{"app": fmt.Sprint(i)}))
	}
	others = append(others, statustest.Limit("bank", "deny", nil))
	got, crowded := wanted(statustest.ByID(statustest.Policy("shop", "a"), statustest.Policy("shop", "b"), statustest.Policy("bank", "c")), others, statustest.Endpoint, noPorts)
	if len(got) != maxCompanions+1 || len(crowded) != 1 || crowded[0].Name != "b" {
		t.Errorf("%d companions, crowded %v", len(got), crowded)
	}
}

func TestEndpointPrefixesAreMasked(t *testing.T) {
	c := newCompanion(statustest.Policy("shop", "web"), &metav1.LabelSelector{}, []netip.Prefix{netip.MustParsePrefix("192.0.2.77/24")})
	if got := c.Spec.Egress[0].To[0].IPBlock.CIDR; got != "192.0.2.0/24" {
		t.Error(got)
	}
}
