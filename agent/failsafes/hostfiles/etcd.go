package hostfiles

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/namegate/namegate/policy/failsafe"
)

// ReasonEtcd is the reason of etcd.
const ReasonEtcd = "etcd"

// apiServerManifest is kubeadm's manifest of the API server.
const apiServerManifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"

var etcdServers = regexp.MustCompile(`--etcd-servers=([^\s"']+)`)

// Etcd returns the members of etcd that the API server of the host asks: they may be hosts
// without a Node object.
func (r Root) Etcd() ([]failsafe.Target, error) {
	text, _, err := r.optional(apiServerManifest)
	if err != nil {
		return nil, err
	}
	var k Kubelet
	for _, match := range etcdServers.FindAllStringSubmatch(text, -1) {
		for server := range strings.SplitSeq(match[1], ",") {
			host, port, err := endpoint(server)
			if err != nil {
				return nil, fmt.Errorf("--etcd-servers of %s: %w", apiServerManifest, err)
			}
			if !isLoopback(host) {
				k.add(host, port, ReasonEtcd, "--etcd-servers of "+apiServerManifest)
			}
		}
	}
	return k.Targets, nil
}
