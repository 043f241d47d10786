package scenarios

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// peersCorefile is for a cluster of two nodes, with Services.
var peersCorefile = strings.Replace(withLimits(fast), "cluster cluster.local 10.1.0.0/24 10.96.0.0/24 fd00:1::/64 fd00:96::/112",
	"cluster cluster.local 10.1.0.0/24 10.2.0.0/24 10.96.0.0/24 fd00:1::/64 fd00:2::/64 fd00:96::/112", 1)

// peerStage is a stage with pods that others reach, some of them on a second node, and
// perhaps another engine.
type peerStage struct {
	*stage
	pods     map[string]*peerPod
	services []lab.Service
	engine   *lab.Engine
	// manifestsOfServices are the Services, each called as its one pod.
	manifestsOfServices string
}

// peerPod is a pod with all that engines go by.
type peerPod struct {
	*lab.Pod
	name, namespace string
	remote          bool
	labels          map[string]string
	sniffer         *lab.Sniffer
}

func newPeerStage(t *testing.T, kind nodeKind) *peerStage {
	t.Helper()
	s := &peerStage{stage: newStageOf(t, kind), pods: map[string]*peerPod{}}
	s.agentWith(peersCorefile, "--node-name", "node-a")
	return s
}

// client makes a pod of the agent's node, in the namespace shop, that has only a label.
func (s *peerStage) client(name string, n int) *peerPod {
	s.t.Helper()
	return s.known(name, s.addPod(name, n), false, map[string]string{"app": name})
}

// server makes a pod of the namespace shop with echo servers and a sniffer.
func (s *peerStage) server(name string, n int, remote bool, labels map[string]string, ports ...int) *peerPod {
	s.t.Helper()
	add := s.AddPod
	if remote {
		add = s.AddRemotePod
	}
	pod, err := add(name, n)
	fatal.If(s.t, err)
	s.serve(pod.Host, ports...)
	p := s.known(name, pod, remote, labels)
	p.sniffer = s.sniff(pod.Host, "eth0")
	return p
}

func (s *peerStage) known(name string, pod *lab.Pod, remote bool, labels map[string]string) *peerPod {
	p := &peerPod{Pod: pod, name: name, namespace: "shop", remote: remote, labels: labels}
	s.pods[name] = p
	return p
}

// service adds a Service port for both families: the node leads n's cluster addresses
// to a pod's port.
func (s *peerStage) service(n int, port uint16, to *peerPod, target uint16) (v4, v6 netip.Addr) {
	s.t.Helper()
	v4, v6 = serviceAddr(n)
	for _, proto := range []string{"tcp", "udp"} {
		for from, at := range map[netip.Addr]netip.Addr{v4: to.Addr4, v6: to.Addr6} {
			s.services = append(s.services, lab.Service{Addr: from, Protocol: proto, Port: port, To: []netip.AddrPort{netip.AddrPortFrom(at, target)}})
		}
	}
	s.manifestsOfServices += fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\nspec:\n  clusterIP: %s\n  ports: [{name: tcp, protocol: TCP, port: %d, targetPort: %d}, {name: udp, protocol: UDP, port: %d, targetPort: %d}]\n",
		to.name, to.namespace, v4, port, target, port, target)
	fatal.If(s.t, s.SetServices(s.services...))
	return v4, v6
}

func serviceAddr(n int) (v4, v6 netip.Addr) {
	return netip.AddrFrom4([4]byte{10, 96, 0, byte(n)}), netip.MustParseAddr(fmt.Sprintf("fd00:96::%x", n))
}

// manifests renders the pods, and adds other files.
func (s *peerStage) manifests(further map[string]string) map[string]string {
	files := maps.Clone(further)
	for name, p := range s.pods {
		files["pod-"+name+".yaml"] = p.manifest()
	}
	return files
}

// manifest renders a v1 Pod.
func (p *peerPod) manifest() string {
	text := p.Manifest(p.namespace, p.name, p.labels)
	spec := "spec:\n"
	if p.remote {
		spec += "  nodeName: node-b\n"
	}
	return strings.Replace(text, "spec:\n", spec, 1)
}

// networkPolicy renders an ordinary NetworkPolicy of the namespace shop.
func networkPolicy(name, spec string) string {
	return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: " + name + ", namespace: shop}\nspec:\n  " +
		strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ") + "\n"
}

// withEngine starts another engine, that knows the stage's pods.
func (s *peerStage) withEngine(style lab.EngineStyle) {
	s.t.Helper()
	var pods []lab.EnginePod
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		p := s.pods[name]
		pods = append(pods, lab.EnginePod{Namespace: p.namespace, Labels: p.labels, Addrs: []netip.Addr{p.Addr4, p.Addr6}, Local: !p.remote})
	}
	var err error
	if s.engine, err = s.NewEngine(style, pods, map[string]map[string]string{"shop": {"kubernetes.io/metadata.name": "shop"}}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := s.engine.Stop(); err != nil {
			s.t.Error(err)
		}
	})
}

// obeys has the engine enforce NetworkPolicies.
func (s *peerStage) obeys(policies ...*networkingv1.NetworkPolicy) {
	s.t.Helper()
	fatal.If(s.t, s.engine.Set(policies))
}

// parsed returns the object that a manifest of one document says.
func parsed[T any](t *testing.T, manifest string) *T {
	t.Helper()
	out := new(T)
	fatal.If(t, yaml.UnmarshalStrict([]byte(manifest), out))
	return out
}
