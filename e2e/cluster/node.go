package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// Node is a host that runs pods.
type Node struct {
	*Host
	site
	cluster *Cluster
}

// ProxyMode is how kube-proxy does its work.
type ProxyMode string

// The modes of kube-proxy that a cluster can run.
const (
	IPTables ProxyMode = "iptables"
	NFTables ProxyMode = "nftables"
)

// own is a file below the node's own /var/lib, as this process sees it.
func (n *Node) own(name string) string { return filepath.Join(hostDir(n.Name), "lib", name) }

// containerdConfig: CNI's folders are the node's own, and score adjustments stay
// in bounds, without which no sandbox starts where CAP_SYS_RESOURCE is missing.
const containerdConfig = `version = 3
disabled_plugins = ["io.containerd.nri.v1.nri"]
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "` + PodImage + `"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "/var/lib/cni/net.d"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
`

func (n *Node) startContainerd(ctx context.Context) error {
	for _, d := range []string{"cni/net.d", "containerd", "kubelet"} {
		if err := os.MkdirAll(n.own(d), 0o755); err != nil {
			return fmt.Errorf("prepare %s: %w", n.Name, err)
		}
	}
	if err := n.writeConflist(n.plugin()); err != nil {
		return err
	}
	if err := os.WriteFile(n.own("containerd.toml"), []byte(containerdConfig), 0o644); err != nil {
		return fmt.Errorf("prepare %s: %w", n.Name, err)
	}
	if err := n.begin("containerd", n.cluster.tool("containerd"), "--config", "/var/lib/containerd.toml"); err != nil {
		return err
	}
	return until(ctx, "containerd on "+n.Name, upTime, func(context.Context) error {
		_, err := n.ctr("version")
		return err
	})
}

// ctr runs containerd's own client on the node.
func (n *Node) ctr(args ...string) (string, error) {
	return n.Run(n.cluster.tool("ctr"), append([]string{"-n", "k8s.io"}, args...)...)
}

// Load gives the node the images of a tarball.
func (n *Node) Load(tarball string) error {
	_, err := n.ctr("images", "import", tarball)
	return err
}

// kubeletConfig: pods ask dns, where their own specification does not say otherwise. Changes of
// ConfigMaps reach pods within 15 s, where the default is a minute and a half.
func (n *Node) kubeletConfig(dns netip.Addr) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[1]s}}
authorization: {mode: Webhook}
tlsCertFile: %[2]s
tlsPrivateKeyFile: %[3]s
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /%[4]s/%[5]s
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
clusterDNS: ["%[6]s"]
clusterDomain: cluster.local
syncFrequency: 10s
nodeLeaseDurationSeconds: 20
resolvConf: /var/lib/resolv.conf
evictionHard: {memory.available: 20Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.available: 1%%}
imageGCHighThresholdPercent: 100
serializeImagePulls: false
`, pkiFile("ca.crt"), pkiFile(n.Name+".crt"), pkiFile(n.Name+".key"), cgroupName, n.Name, dns)
}

// kubeletConfig is the path of the kubelet's kubeconfig on a node.
const kubeletConfig = "/var/lib/kubelet/kubeconfig"

// startKubelet starts the kubelet.
func (n *Node) startKubelet(dns netip.Addr) error {
	resolv := fmt.Sprintf("nameserver %s\n", Resolver4)
	if err := errors.Join(
		os.WriteFile(n.own("kubelet.yaml"), []byte(n.kubeletConfig(dns)), 0o644),
		os.WriteFile(n.own("resolv.conf"), []byte(resolv), 0o644)); err != nil {
		return fmt.Errorf("prepare %s: %w", n.Name, err)
	}
	config, err := os.ReadFile(pkiFile(n.Name + ".conf"))
	if err != nil {
		return fmt.Errorf("prepare %s: %w", n.Name, err)
	}
	if err := os.WriteFile(n.own("kubelet/kubeconfig"), config, 0o600); err != nil {
		return fmt.Errorf("prepare %s: %w", n.Name, err)
	}
	return n.begin("kubelet", n.cluster.tool("kubelet"),
		"--config=/var/lib/kubelet.yaml", "--kubeconfig="+kubeletConfig,
		"--hostname-override="+n.Name, "--node-ip="+n.addr4.String()+","+n.addr6.String())
}

// register waits until the API server knows the node, and gives it its ranges.
func (n *Node) register(ctx context.Context) error {
	ranges := fmt.Sprintf(`{"spec":{"podCIDR":"%s","podCIDRs":["%s","%s"]}}`, n.pods4, n.pods4, n.pods6)
	return until(ctx, "the registration of "+n.Name, upTime, func(ctx context.Context) error {
		_, err := n.cluster.Kubectl(ctx, "", "patch", "node", n.Name, "--type=merge", "-p", ranges)
		return err
	})
}

// RestartKubeProxy stops the node's kube-proxy and starts it in a mode. It
// returns when kube-proxy says that it is healthy.
func (n *Node) RestartKubeProxy(ctx context.Context, mode ProxyMode) error {
	if err := n.StopKubeProxy(); err != nil {
		return err
	}
	// The kernel's limits on connections are the machine's: they stay.
	if err := n.begin("kube-proxy", n.cluster.tool("kube-proxy"),
		"--kubeconfig="+pkiFile("proxy.conf"), "--hostname-override="+n.Name, "--proxy-mode="+string(mode),
		"--cluster-cidr="+joined(PodRanges), "--healthz-bind-address="+n.addr4.String()+":10256",
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"); err != nil {
		return err
	}
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true}}
	return until(ctx, "kube-proxy on "+n.Name, upTime, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.addr4.String()+":10256/healthz", http.NoBody)
		if err != nil {
			return fmt.Errorf("ask kube-proxy: %w", err)
		}
		response, err := client.Do(request)
		if err != nil {
			return fmt.Errorf("ask kube-proxy: %w", err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("kube-proxy on %s says %s", n.Name, response.Status)
		}
		return nil
	})
}

// StopKubeProxy stops the node's kube-proxy; its rules stay.
func (n *Node) StopKubeProxy() error { return n.end("kube-proxy") }

// RestartKubelet stops the node's kubelet and starts it with another address for
// the DNS of the pods that it makes from now on; DNS4 is what it begins with.
func (n *Node) RestartKubelet(dns netip.Addr) error {
	return errors.Join(n.StopKubelet(), n.startKubelet(dns))
}

// StopKubelet stops the node's kubelet; its pods stay.
func (n *Node) StopKubelet() error { return n.end("kubelet") }

// Pull pulls an image of a registry that speaks HTTP, as the kubelet has containerd do it.
func (n *Node) Pull(image string) error {
	_, err := n.ctr("images", "pull", "--plain-http", image)
	return err
}

// Restart ends every process of the node and starts the node's programs again: pods come back
// by the kubelet. The rules in the kernel stay, and nothing of Namegate runs until then.
func (n *Node) Restart(ctx context.Context, dns netip.Addr) error {
	if err := errors.Join(n.kill("kubelet"), n.kill("kube-proxy"), n.kill("containerd")); err != nil {
		return err
	}
	// Of a host's processes the first reaps alone, and this shell ends by itself.
	const rest = `grep -q stand /proc/1/comm || exit 1; for p in /proc/[0-9]*; do p=${p#/proc/}; [ "$p" = 1 ] || [ "$p" = $$ ] || kill -KILL "$p" 2>/dev/null; done; true`
	if _, err := n.Run("sh", "-c", rest); err != nil {
		return err
	}
	if err := errors.Join(n.startContainerd(ctx), n.startKubelet(dns)); err != nil {
		return err
	}
	return n.RestartKubeProxy(ctx, IPTables)
}

// NFT returns the node's nftables rules.
func (n *Node) NFT() (string, error) { return n.Run("nft", "list", "ruleset") }

// Rules returns the node's rules as iptables-save or ip6tables-save print them.
func (n *Node) Rules(program string) (string, error) { return n.Run(program) }

// Sets returns the node's ipsets with their entries.
func (n *Node) Sets() (string, error) { return n.Run("ipset", "list") }

// Connections returns the node's conntrack entries of both families.
func (n *Node) Connections() (string, error) {
	four, err := n.Run("conntrack", "-L", "-f", "ipv4")
	if err != nil {
		return "", err
	}
	six, err := n.Run("conntrack", "-L", "-f", "ipv6")
	return four + six, err
}

// Tag gives an image that the node has another name.
func (n *Node) Tag(image, name string) error {
	_, err := n.ctr("images", "tag", "--force", image, name)
	return err
}

// AgentStatus returns what `namegate status` prints on the node, without the API
// server: the machine's own build of the program asks the agent at its socket.
// Args are further ones of that command.
func (n *Node) AgentStatus(args ...string) (string, error) {
	return n.namegate("status", args...)
}

// Cleanup runs `namegate cleanup` on the node, as an administrator does at its console.
func (n *Node) Cleanup() error {
	_, err := n.namegate("cleanup")
	return err
}

func (n *Node) namegate(verb string, args ...string) (string, error) {
	return n.Run(filepath.Join(filepath.Dir(n.cluster.bin), "namegate"), append([]string{verb}, args...)...)
}

// KillContainers kills the running containers of a name on the node, without the kubelet, and
// returns when they have ended.
func (n *Node) KillContainers(ctx context.Context, name string) error {
	return until(ctx, "the end of the containers "+name+" of "+n.Name, stopTime, func(context.Context) error {
		running, err := n.running(fmt.Sprintf(`labels."io.kubernetes.container.name"==%s`, name))
		for id := range running {
			_, killed := n.ctr("tasks", "kill", "--signal", "KILL", id)
			err = errors.Join(err, killed, fmt.Errorf("%s runs", id))
		}
		return err
	})
}
