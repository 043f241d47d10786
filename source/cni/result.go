package cni

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
)

// Sandbox has the addresses of one pod's sandbox.
type Sandbox struct {
	Addrs []netip.Addr // in the plugin's order, never none
	// Since is when the result was written, in Unix seconds, 0 if the clock was set back since.
	Since int64
}

// Results are the sandboxes of a node by their pods' UIDs. Of several sandboxes of a pod
// the last one counts.
type Results map[string]Sandbox

// Has tells whether a sandbox has an address.
func (r Results) Has(a netip.Addr) bool {
	for _, s := range r {
		if slices.Contains(s.Addrs, a) {
			return true
		}
	}
	return false
}

// podInterface is the interface that has a pod's addresses: the runtimes name it so, and
// the kubelet reads no other (containerd: defaultIfName of internal/cri/server; CRI-O:
// ocicni's DefaultInterfaceName). Plugins that add interfaces use other names.
const podInterface = "eth0"

// cached is what libcni writes, as far as it is used (libcni, api.go: cachedInfo of kind
// "cniCacheV1"), with a result of CNI 0.3.0 to 1.1.0 (specification, "Success").
type cached struct {
	Kind   string      `json:"kind"`
	IfName string      `json:"ifName"`
	Args   [][2]string `json:"cniArgs"`
	Result struct {
		Interfaces []struct {
			Name string `json:"name"`
		} `json:"interfaces"`
		IPs []struct {
			Address   string `json:"address"`
			Interface *int   `json:"interface"`
		} `json:"ips"`
	} `json:"result"`
}

// parse returns the UID and the addresses of the pod of a result. Both are empty for a
// result of another interface, and of a runtime that does not name the pod.
func parse(text []byte) (uid string, addrs []netip.Addr, err error) {
	var c cached
	if err := json.Unmarshal(text, &c); err != nil {
		return "", nil, fmt.Errorf("read a CNI result: %w", err)
	}
	if c.Kind != "cniCacheV1" || c.IfName != podInterface {
		return "", nil, nil
	}
	for _, arg := range c.Args {
		if arg[0] == "K8S_POD_UID" {
			uid = arg[1]
		}
	}
	for _, ip := range c.Result.IPs {
		if i := ip.Interface; i != nil && (*i < 0 || *i >= len(c.Result.Interfaces) || c.Result.Interfaces[*i].Name != podInterface) {
			continue // an address of the node's side, or of another interface of the pod
		}
		p, err := netip.ParsePrefix(ip.Address)
		if err != nil {
			return "", nil, fmt.Errorf("read a CNI result: address %q: %w", ip.Address, err)
		}
		if a := p.Addr().Unmap(); !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	if uid == "" || len(addrs) == 0 {
		return "", nil, nil
	}
	return uid, addrs, nil
}
