package hostfiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

// The reasons of the kubelet's destinations.
const (
	ReasonAPIServer = "API server"
	ReasonProxy     = "proxy of the kubelet"
)

// kubeconfigs are the kubelet's kubeconfigs of distributions.
var kubeconfigs = []string{
	"/etc/kubernetes/kubelet.conf",                          // kubeadm, kubespray
	"/etc/kubernetes/bootstrap-kubelet.conf",                // kubeadm, before the node has a certificate
	"/var/lib/kubelet/kubeconfig",                           // EKS, GKE, AKS, kOps
	"/var/lib/kubelet/bootstrap-kubeconfig",                 // GKE, AKS
	"/etc/kubernetes/kubelet/kubeconfig",                    // Bottlerocket
	"/etc/kubernetes/kubeconfig-kubelet",                    // Talos
	"/etc/kubernetes/kubeconfig",                            // OpenShift
	"/var/lib/rancher/k3s/agent/kubelet.kubeconfig",         // k3s
	"/var/lib/rancher/rke2/agent/kubelet.kubeconfig",        // RKE2
	"/var/snap/microk8s/current/credentials/kubelet.config", // MicroK8s
	"/var/lib/k0s/kubelet.conf",                             // k0s
}

// loadBalancers are the files in which the load balancers of k3s and RKE2 on the node keep
// the API servers behind them.
var loadBalancers = []string{
	"/var/lib/rancher/k3s/agent/etc/k3s-agent-load-balancer.json",
	"/var/lib/rancher/k3s/agent/etc/k3s-api-server-agent-load-balancer.json",
	"/var/lib/rancher/rke2/agent/etc/rke2-agent-load-balancer.json",
	"/var/lib/rancher/rke2/agent/etc/rke2-api-server-agent-load-balancer.json",
}

// ErrNoKubeconfig means: the host has no kubeconfig of a kubelet at a known place.
var ErrNoKubeconfig = errors.New("no kubeconfig of the kubelet found")

// Kubelet is the destinations of the kubelet.
type Kubelet struct {
	// Targets are API servers and proxies.
	Targets []failsafe.Target
	// Local is the kubeconfig whose API server is an address of loopback and whose
	// destinations behind it are not known; "" for none.
	Local string
	// CredentialProvider: plugins give the kubelet credentials of registries.
	CredentialProvider bool
	// Kubeconfigs are the kubeconfigs that were read, and Empty those without text: of another
	// program, or written at this moment.
	Kubeconfigs, Empty []string
}

// Since returns an error if a kubeconfig that an earlier reading has is empty: a program that writes
// a file may empty it first.
func (k *Kubelet) Since(earlier *Kubelet) error {
	for _, p := range k.Empty {
		if slices.Contains(earlier.Kubeconfigs, p) {
			return fmt.Errorf("%s %w", p, errEmpty)
		}
	}
	return nil
}

// Kubelet reads the kubeconfig and the service of the kubelet.
func (r Root) Kubelet() (Kubelet, error) {
	var k Kubelet
	flags, err := r.kubeletService(&k)
	if err != nil {
		return Kubelet{}, err
	}
	k.CredentialProvider = flags["image-credential-provider-config"] != ""
	paths := kubeconfigs
	for _, flag := range []string{"bootstrap-kubeconfig", "kubeconfig"} {
		if p := flags[flag]; path.IsAbs(p) && !slices.Contains(paths, p) {
			paths = append([]string{p}, paths...)
		}
	}
	for _, p := range paths {
		text, there, err := r.optional(p)
		if err != nil {
			return Kubelet{}, err
		}
		if !there {
			continue
		}
		if strings.TrimSpace(text) == "" {
			k.Empty = append(k.Empty, p)
			continue
		}
		if err := k.kubeconfig(p, text); err != nil {
			return Kubelet{}, err
		}
		k.Kubeconfigs = append(k.Kubeconfigs, p)
	}
	switch {
	case len(k.Kubeconfigs) > 0:
		return k, r.loadBalancers(&k)
	case len(k.Empty) > 0:
		return Kubelet{}, fmt.Errorf("%s %w", k.Empty[0], errEmpty)
	}
	return Kubelet{}, ErrNoKubeconfig
}

// kubeconfig adds the API servers and proxies of a kubeconfig.
func (k *Kubelet) kubeconfig(file, text string) error {
	c, err := clientcmd.Load([]byte(text))
	if err != nil {
		return fmt.Errorf("parse %s: %w", file, err)
	}
	if len(c.Clusters) == 0 {
		return fmt.Errorf("%s has no cluster", file)
	}
	source := "kubelet's kubeconfig " + file
	for name, cluster := range c.Clusters {
		host, port, err := endpoint(cluster.Server)
		if err != nil {
			return fmt.Errorf("server of the cluster %s in %s: %w", name, file, err)
		}
		if isLoopback(host) {
			k.Local = file
		} else {
			k.add(host, port, ReasonAPIServer, source)
		}
		if cluster.ProxyURL != "" {
			if err := k.proxy(cluster.ProxyURL, "proxy-url of "+source); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *Kubelet) add(host string, port uint16, reason, source string) {
	t := failsafe.Target{Host: host, Ports: failsafe.Port(policy.TCP, port), Reason: reason, Source: source}
	if !slices.Contains(k.Targets, t) {
		k.Targets = append(k.Targets, t)
	}
}

// proxy adds a proxy. Without a scheme it is one of HTTP, as Go's programs read it.
func (k *Kubelet) proxy(text, source string) error {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	host, port, err := endpoint(text)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	if !isLoopback(host) {
		k.add(host, port, ReasonProxy, source)
	}
	return nil
}

// loadBalancers adds the API servers behind the load balancers of k3s and RKE2.
func (r Root) loadBalancers(k *Kubelet) error {
	for _, file := range loadBalancers {
		text, there, err := r.optional(file)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		var state struct {
			ServerURL       string
			ServerAddresses []string
		}
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			return fmt.Errorf("parse %s: %w", file, err)
		}
		for _, a := range append(state.ServerAddresses, state.ServerURL) {
			if a == "" {
				continue
			}
			host, port, err := endpoint(a)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if !isLoopback(host) {
				k.add(host, port, ReasonAPIServer, "load balancer "+file)
				k.Local = ""
			}
		}
	}
	return nil
}

// schemePorts are the ports of URLs without one. A proxy of curl's SOCKS has 1080.
var schemePorts = map[string]uint16{"": 443, "https": 443, "http": 80, "socks5": 1080, "socks5h": 1080, "socks4": 1080}

// endpoint returns the host, an address or a name, and the port of a URL, or of HOST:PORT.
// The error does not have the URL, which may have a password.
func endpoint(text string) (host string, port uint16, err error) {
	if !strings.Contains(text, "://") {
		text = "//" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return "", 0, errors.New("the URL has no host")
	}
	host = strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return "", 0, fmt.Errorf("the URL of %s has the port %s", host, p)
		}
		return host, uint16(n), nil
	}
	port, known := schemePorts[strings.ToLower(u.Scheme)]
	if !known {
		return "", 0, fmt.Errorf("the URL of %s has no port", host)
	}
	return host, port, nil
}

func isLoopback(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
