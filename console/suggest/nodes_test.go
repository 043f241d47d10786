package suggest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// nodeLine is a flow of a node.
func nodeLine(node, verdict, to, protocol, host, names string) string {
	return fmt.Sprintf(`{"v":1,"kind":"flow","time":"2026-05-01T12:00:00.250000Z","node":%q,"verdict":%q,%s,"protocol":%q,"destination":{%s},%s"reason":"rule","tier":"Admin","policy":"nodenetworkpolicy:nodes-egress","rule":"rest","count":1}`+"\n",
		node, verdict, host, protocol, to, names)
}

// TestNodeNeeds: names where the node asked for them, else addresses, on the ports that were dialled;
// the policy only audits, has a safeguard, and is valid.
func TestNodeNeeds(t *testing.T) {
	const root, user, pod = `"host":{"uid":0,"gid":0,"ip":"192.0.2.7"}`, `"host":{"uid":42,"gid":7,"ip":"192.0.2.7"}`, `"pod":{"namespace":"shop","name":"a","ip":"10.1.0.1"}`
	const registry, mirror, others = `"names":[{"name":"registry.test"}],`, `"names":[{"name":"mirror.test"}],`, `"names":[{"name":"other.test","pod":"shop/a"}],`
	lines := nodeLine("n2", "would-deny", `"address":"198.51.100.1","port":443`, "tcp", root, registry) +
		nodeLine("n1", "denied", `"address":"198.51.100.1","port":443`, "tcp", user, registry) +
		nodeLine("n1", "would-deny", `"address":"198.51.100.2","port":80`, "tcp", user, mirror) +
		nodeLine("n1", "would-deny", `"address":"203.0.113.5","port":123`, "udp", root, others) +
		nodeLine("n1", "would-deny", `"address":"203.0.113.9"`, "icmp", root, "") +
		nodeLine("n3", "would-deny", `"address":"192.0.2.7","port":22`, "tcp", `"host":{"ip":"192.0.2.7"}`, `"direction":"ingress","source":{"address":"203.0.113.8"},`) +
		nodeLine("n3", "would-deny", `"address":"203.0.113.9","port":53`, "udp", root, `"traffic":"Untracked",`) +
		nodeLine("n1", "would-allow", `"address":"203.0.113.6","port":1`, "udp", root, "") +
		nodeLine("n1", "denied", `"address":"203.0.113.7","port":1`, "udp", pod, "")
	n := NewLog()
	fatal.If(t, audit.Read(strings.NewReader(lines), func(l audit.Line) error {
		return n.Add(l)
	}, func(_ int, err error) { t.Error(err) }))
	if got, common := n.Suggest(Options{}).objects(), n.SuggestCluster(ClusterOptions{Namespaces: 1}).objects(); len(got) > 0 || len(common) > 0 {
		t.Errorf("lines of nodes give policies for pods: %+v, %+v", got, common)
	}
	s := n.SuggestNodes()
	var out bytes.Buffer
	fatal.If(t, s.Write(&out))
	const want = `# For the connections of the nodes n1, n2. It selects every node, and only audits: change nodeSelector, try it, then write enforcement: Enforce.
# Note: 203.0.113.5/32: dialled by the users 0
# Note: mirror.test: dialled by the users 42
# Note: registry.test: dialled by the users 0, 42
# Left out: icmp to 203.0.113.9/32: rules have ports of TCP, UDP and SCTP; add a rule without ports where the destination is needed
apiVersion: namegate.io/v1alpha1
kind: NodeNetworkPolicy
metadata:
  name: nodes-egress-2
spec:
  nodeSelector: {}
  priority: 500
  egress:
  - action: Accept
    matches:
    - name: registry.test
    ports:
    - protocol: TCP
      port: 443
  - action: Accept
    matches:
    - name: mirror.test
    ports:
    - protocol: TCP
      port: 80
  - action: Accept
    networks:
    - 203.0.113.5/32
    ports:
    - protocol: UDP
      port: 123
  - name: everything else
    action: Deny
  enforcement: Audit
  safeguard:
    confirmWithin: 5m
`
	diff.Error(t, want, out.String())
	var p v1alpha1.NodeNetworkPolicy
	fatal.If(t, yaml.UnmarshalStrict(out.Bytes(), &p))
	diff.Empty(t, nnp.Validate(&p))
	out.Reset()
	fatal.If(t, NewLog().SuggestNodes().Write(&out))
	if !strings.HasPrefix(out.String(), "# No policy: ") || strings.Contains(out.String(), "kind:") {
		t.Error(out.String())
	}
}
