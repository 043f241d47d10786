package chartstest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
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
		if ds.Spec.Template.Labels[k] != v {
			t.Errorf("the Service selects %s=%s, which pods do not have", k, v)
		}
	}
	m := the[*monitor](t, r.objects, "ServiceMonitor/namegate")
	for k, v := range m.Spec.Selector.MatchLabels {
		if s.Labels[k] != v {
			t.Errorf("the ServiceMonitor selects %s=%s, which the Service does not have", k, v)
		}
	}
	if len(m.Spec.Endpoints) != 1 || m.Spec.Endpoints[0].Port != "metrics" || m.Spec.Endpoints[0].Interval != "15s" || m.Labels["release"] != "monitoring" {
		t.Errorf("the ServiceMonitor %+v", m)
	}
	if s.Annotations["a"] != "b" {
		t.Errorf("annotations %v", s.Annotations)
	}
}
