package policy

import "testing"

func TestWorkload(t *testing.T) {
	for _, test := range []struct {
		labels map[string]string
		want   string
	}{
		{nil, ""},
		{map[string]string{"pod-template-hash": "7d9f"}, ""},
		{map[string]string{"tier": "front", "app": "cart", "pod-template-hash": "7d9f"}, "app=cart,tier=front"},
		{map[string]string{"app": "", "apps.kubernetes.io/pod-index": "0", "statefulset.kubernetes.io/pod-name": "db-0"}, "app="},
		{map[string]string{"job-name": "nightly-28", "batch.kubernetes.io/job-name": "nightly-28", "controller-uid": "1", "app.kubernetes.io/name": "nightly"}, "app.kubernetes.io/name=nightly"},
	} {
		p := Pod{Labels: test.labels}
		if got := p.Workload(); got != test.want {
			t.Errorf("%v: %q, want %q", test.labels, got, test.want)
		}
	}
}
