package companion

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

// noPorts lets companions open the endpoint alone.
func noPorts(*v1alpha1.FQDNNetworkPolicy, *networkingv1.NetworkPolicy) (none compile.PodPorts) {
	return none
}

// anyPort lets them open all.
func anyPort(*v1alpha1.FQDNNetworkPolicy, *networkingv1.NetworkPolicy) compile.PodPorts {
	return compile.PodPorts{Numbers: policy.AnyPort}
}

// emitted drains a recorder.
func emitted(r *events.FakeRecorder) (out []string) {
	for len(r.Events) > 0 {
		out = append(out, <-r.Events)
	}
	return out
}
