package policy

import (
	"net/netip"
	"strings"
	"testing"
)

func TestCheckPodAddr(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "", "192.0.2.1": "", "100.64.0.1": "", "223.255.255.255": "", "2001:db8::1": "", "fd00::1": "", "::ffff:10.0.0.1": "",
		"0.0.0.0": "no host's", "0.1.2.3": "no host's", "::": "no host's", "255.255.255.255": "no host's", "240.0.0.1": "no host's",
		"127.0.0.1": "loopback", "127.9.9.9": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback",
		"224.0.0.1": "multicast", "239.1.1.1": "multicast", "ff02::1": "multicast",
		"169.254.1.1": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "zone", "2001:db8::1%eth0": "zone",
	} {
		switch err := CheckPodAddr(addr(text)); {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), text)):
			t.Errorf("%s: the error does not say %q: %v", text, want, err)
		}
	}
	if err := CheckPodAddr(netip.Addr{}); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("no address: %v", err)
	}
}

// TestAddressesThatNoPodHas are nobody's; the pod's others work.
func TestAddressesThatNoPodHas(t *testing.T) {
	pod := aPod("web", "x", "127.0.0.1", "10.0.0.1", "fe80::1%eth0", "224.0.0.1")
	given := len(pod.IPs)
	remote := aPod("far", "x", "0.0.0.0")
	remote.NodeName = "node-b"
	s := compile([]Pod{pod, remote}, aPolicy("p", "", aRule("a.test")))
	if v := s.View(addr("10.0.0.1")); v == nil || len(v.Pod.IPs) != 1 {
		t.Errorf("the view at the good address is %v", v)
	}
	for _, a := range []string{"127.0.0.1", "fe80::1", "224.0.0.1", "0.0.0.0"} {
		if ref, known := s.Pod(addr(a)); known || s.View(addr(a)) != nil {
			t.Errorf("%s is that of %v", a, ref)
		}
	}
	if len(s.Problems) != 4 || s.Problems[0].Object != "pod shop/far" || s.Problems[1].Object != "pod shop/web" || s.Problems[1].Reason != ReasonAddressInvalid {
		t.Errorf("problems %v", s.Problems)
	}
	if len(pod.IPs) != given || pod.IPs[0] != addr("127.0.0.1") {
		t.Error("the caller's addresses were changed")
	}
}
