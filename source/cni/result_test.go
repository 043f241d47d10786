package cni

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// aResult is a file of libcni for a pod that has the addresses.
func aResult(uid string, addresses ...string) string {
	var ips []string
	for _, a := range addresses {
		ips = append(ips, fmt.Sprintf(`{"address":%q,"interface":1}`, a))
	}
	return `{"kind":"cniCacheV1","containerId":"c1","config":"e30=","ifName":"eth0","networkName":"pods",
"cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME","web"],["K8S_POD_UID","` + uid + `"]],
"result":{"cniVersion":"1.0.0","interfaces":[{"name":"veth1"},{"name":"eth0","sandbox":"/run/netns/x"}],"ips":[` + strings.Join(ips, ",") + `]}}`
}

func TestParse(t *testing.T) {
	good := aResult("u1", "10.0.0.1/24")
	for _, c := range []struct {
		name, text, uid string
		addrs           []string
		err             string
	}{
		{"one family", good, "u1", []string{"10.0.0.1"}, ""},
		{"both families", aResult("u1", "10.0.0.1/24", "2001:db8::1/64"), "u1", []string{"10.0.0.1", "2001:db8::1"}, ""},
		{"told twice, once mapped", aResult("u1", "10.0.0.1/24", "::ffff:10.0.0.1/120"), "u1", []string{"10.0.0.1"}, ""},
		{"an address of the node's side", strings.Replace(aResult("u1", "10.0.0.1/24", "10.0.0.254/24"), `"10.0.0.254/24","interface":1`, `"10.0.0.254/24","interface":0`, 1),
			"u1", []string{"10.0.0.1"}, ""},
		{"a second interface in the sandbox", strings.NewReplacer(`{"name":"eth0","sandbox":"/run/netns/x"}`, `{"name":"eth0","sandbox":"/run/netns/x"},{"name":"v4if0","sandbox":"/run/netns/x"}`,
			`"169.254.172.2/22","interface":1`, `"169.254.172.2/22","interface":2`).Replace(aResult("u1", "2001:db8::1/128", "169.254.172.2/22")), "u1", []string{"2001:db8::1"}, ""},
		{"an interface without a sandbox", strings.Replace(good, `,"sandbox":"/run/netns/x"`, "", 1), "u1", []string{"10.0.0.1"}, ""},
		{"no interfaces told", strings.NewReplacer(`,"interface":1`, "", `"interfaces":[{"name":"veth1"},{"name":"eth0","sandbox":"/run/netns/x"}],`, "").Replace(good), "u1", []string{"10.0.0.1"}, ""},
		{"an interface that is not listed", strings.Replace(good, `"interface":1`, `"interface":7`, 1), "", nil, ""},
		{"another interface", strings.Replace(good, `"ifName":"eth0"`, `"ifName":"net1"`, 1), "", nil, ""},
		{"another kind of file", strings.Replace(good, "cniCacheV1", "cniCacheV2", 1), "", nil, ""},
		{"a runtime that does not name the pod", strings.Replace(good, "K8S_POD_UID", "POD", 1), "", nil, ""},
		{"no address", aResult("u1"), "", nil, ""},
		{"a bad address", aResult("u1", "10.0.0"), "", nil, `read a CNI result: address "10.0.0"`},
		{"half written", good[:100], "", nil, "read a CNI result"},
		{"empty", "", "", nil, "read a CNI result"},
	} {
		t.Run(c.name, func(t *testing.T) {
			uid, addrs, err := parse([]byte(c.text))
			if uid != c.uid || !slices.Equal(addrs, parsed(c.addrs)) {
				t.Errorf("%q %v, want %q %v", uid, addrs, c.uid, c.addrs)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

func parsed(texts []string) (out []netip.Addr) {
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(aResult("u1", "10.0.0.1/24", "2001:db8::1/64")))
	f.Add([]byte(`{"kind":"cniCacheV1","ifName":"eth0","cniArgs":[["K8S_POD_UID"]],"result":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		uid, addrs, err := parse(text)
		if (uid == "") != (len(addrs) == 0) || err != nil && uid != "" {
			t.Errorf("%q %v %v: a result has a pod and addresses, or neither", uid, addrs, err)
		}
	})
}
