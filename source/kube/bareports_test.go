package kube

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/policy/api/fqdnnp"
)

func withPorts(t *testing.T, ports ...any) *unstructured.Unstructured {
	return set(t, aPolicy("p", "www.example.org"), []any{map[string]any{"matches": []any{map[string]any{"name": "www.example.org"}}, "ports": ports}}, "spec", "egress")
}

// bareText shows the open ports of the policies, and their ports without a protocol.
func bareText(s State) string {
	var out []string
	for i := range s.Input.Policies {
		out = append(out, string(fqdnnp.Read(&s.Input.Policies[i]).EgressPorts()))
	}
	return fmt.Sprint(strings.Join(out, " "), " ", s.BarePorts)
}

// TestBarePorts: the state has the ports without a protocol, and with PortsTCP they are TCP's
// alone; an unchanged policy shares its memory either way.
func TestBarePorts(t *testing.T) {
	for tcp, want := range map[bool]string{
		false: "tcp/443,tcp/8000-8010,udp/443,udp/8000-8010,sctp/443,sctp/8000-8010 ",
		true:  "tcp/443,tcp/8000-8010,udp/443 ",
	} {
		api := newAPIServer(t)
		port := func(port any, more ...any) map[string]any {
			p := map[string]any{"port": port}
			for i := 0; i < len(more); i += 2 {
				p[more[i].(string)] = more[i+1]
			}
			return p
		}
		bare := withPorts(t, port(int64(443)), port(int64(443), "protocol", "UDP"), port(int64(8000), "endPort", int64(8010)))
		api.put("fqdnnetworkpolicies", bare)
		client, dyn := api.clients()
		r := runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, PortsTCP: tcp, Log: slog.New(slog.DiscardHandler), Clock: hastyClock{}})
		first := r.until(want+"map[shop/p:[spec.egress[0].ports[0] (443) spec.egress[0].ports[2] (8000-8010)]]", bareText)
		again := bare.DeepCopy()
		again.SetAnnotations(map[string]string{"a": "b"})
		api.put("fqdnnetworkpolicies", again)
		second := r.until("b", func(s State) string { return s.Input.Policies[0].Annotations["a"] })
		if &first.Input.Policies[0].Spec.Egress[0] != &second.Input.Policies[0].Spec.Egress[0] {
			t.Errorf("PortsTCP %v: an unchanged policy has memory of its own", tcp)
		}
		api.put("fqdnnetworkpolicies", withPorts(t, port(int64(443), "protocol", "TCP"), map[string]any{}))
		r.until("any map[]", bareText)
	}
}
