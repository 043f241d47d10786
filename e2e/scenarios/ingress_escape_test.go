package scenarios

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestIngressLostRule: what got in while a rival had emptied sets of rules that deny is cut when these are there again.
func TestIngressLostRule(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"cnp.yaml": `
apiVersion: policy.networking.k8s.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: first}
spec:
  tier: Admin
  priority: 1
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}
  ingress: [{action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: bad}}}}]}]
`}))
		others := s.linesToWeb("good")
		s.reaches("at first", s.Pod("bad").Host, "tcp", 8080, lab.Silent)
		fatal.If(t, s.agent.Signal(syscall.SIGSTOP))
		run(t, s.Node, "sh", "-c", eachNamed("set", "peers-", "nft flush set inet namegate $n"))
		lines := s.linesToWeb("bad")
		fatal.If(t, s.agent.Signal(syscall.SIGCONT))
		fatal.Await(t, "a repair", func() bool {
			return s.Pod("bad").Probe("tcp", netip.AddrPortFrom(s.Pod("web").Addr4, 8080)) == lab.Silent
		})
		s.podNext("after a repair", lines, others)
	})
}
