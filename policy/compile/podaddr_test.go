package compile

import (
	"testing"

	"github.com/namegate/namegate/policy"
)

// TestInvalidPodAddresses are ignored; the pod's other addresses work.
func TestInvalidPodAddresses(t *testing.T) {
	pod := aPod("web", "x", "127.0.0.1", "10.0.0.1", "fe80::1%eth0", "224.0.0.1")
	given := len(pod.IPs)
	remote := aPod("far", "x", "0.0.0.0")
	remote.NodeName = "node-b"
	s := compile([]policy.Pod{pod, remote}, aPolicy("p", "", aRule("a.test")))
	if v := s.View(addr("10.0.0.1")); v == nil || len(v.Pod.IPs) != 1 {
		t.Errorf("the view at the good address is %v", v)
	}
	for _, a := range []string{"127.0.0.1", "fe80::1", "224.0.0.1", "0.0.0.0"} {
		if ref, known := s.Pod(addr(a)); known || s.View(addr(a)) != nil {
			t.Errorf("%s is that of %v", a, ref)
		}
	}
	if len(s.Problems) != 4 || s.Problems[0].Object != "pod shop/far" || s.Problems[1].Object != "pod shop/web" || s.Problems[1].Reason != policy.ReasonAddressInvalid {
		t.Errorf("problems %v", s.Problems)
	}
	if len(pod.IPs) != given || pod.IPs[0] != addr("127.0.0.1") {
		t.Error("the caller's addresses were changed")
	}
}
