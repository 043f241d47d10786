package chartstest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/testkit/diff"
)

// TestMetrics: Service, ServiceMonitor, labels of pods and the port are one.
func TestMetrics(t *testing.T) {
	r := render(t, everything)
	ds, _ := r.agent(t)
	s := the[*corev1.Service](t, r.objects, "Service/namegate-metrics")
	if s.Spec.ClusterIP != corev1.ClusterIPNone || len(s.Spec.Ports) != 1 {
		t.Fatalf("service %+v", s.Spec)
	}
	if p := s.Spec.Ports[0]; p.Port != 9000 || p.TargetPort.IntValue() != 9000 || p.Name != "metrics" {
		t.Errorf("port %+v", p)
	}
	for k, v := range s.Spec.Selector {
		diff.Equal(t, v, ds.Spec.Template.Labels[k], "the Service selects", k)
	}
	m := the[*monitor](t, r.objects, "ServiceMonitor/namegate")
	for k, v := range m.Spec.Selector.MatchLabels {
		diff.Equal(t, v, s.Labels[k], "the ServiceMonitor selects", k)
	}
	if len(m.Spec.Endpoints) != 1 || m.Spec.Endpoints[0].Port != "metrics" || m.Spec.Endpoints[0].Interval != "15s" || m.Labels["release"] != "monitoring" {
		t.Errorf("the ServiceMonitor %+v", m)
	}
	diff.Equal(t, "b", s.Annotations["a"], "annotations", s.Annotations)
}
