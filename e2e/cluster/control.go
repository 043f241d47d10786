package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// APIServer is where the API server listens.
var APIServer = netip.AddrPortFrom(controlSite.addr4, 6443)

const etcdURL = "http://127.0.0.1:2379"

// NodeGrace is how long a node may be silent until the cluster marks it unready: half the default
// of Kubernetes.
const NodeGrace = 25 * time.Second

func base64Of(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func joined(prefixes []netip.Prefix) string {
	var words []string
	for _, p := range prefixes {
		words = append(words, p.String())
	}
	return strings.Join(words, ",")
}

// certify writes every certificate and kubeconfig of the cluster.
func certify() error {
	p, err := newPKI()
	if err != nil {
		return err
	}
	first := ServiceRanges[0].Addr().Next()
	errs := []error{
		p.server("apiserver", "kube-apiserver", nil,
			[]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
			controlSite.addr4, controlSite.addr6, first, ServiceRanges[1].Addr().Next(), netip.MustParseAddr("127.0.0.1")),
		p.server("kubelet-client", "kube-apiserver-kubelet-client", []string{"system:masters"}, nil),
		p.server("front-proxy", "front-proxy-client", nil, nil),
		p.server("service-account", "service-accounts", nil, nil),
		p.kubeconfig("admin", "kubernetes-admin", "system:masters"),
		p.kubeconfig("controllers", "system:kube-controller-manager"),
		p.kubeconfig("scheduler", "system:kube-scheduler"),
		p.kubeconfig("proxy", "system:kube-proxy"),
		// Its own manifest lets it read what NetworkPolicies speak of, and more.
		p.kubeconfig("kube-router", "kube-router", "system:masters"),
		p.kubeconfig("flannel", "flannel", "system:masters"),
	}
	for _, n := range nodeSites {
		errs = append(errs,
			p.kubeconfig(n.name, "system:node:"+n.name, "system:nodes"),
			p.server(n.name, "system:node:"+n.name, []string{"system:nodes"}, []string{n.name}, n.addr4, n.addr6))
	}
	return errors.Join(errs...)
}

func (c *Cluster) startEtcd() error {
	// What it stores need not outlive a loss of power.
	return c.control.begin("etcd", c.tool("etcd"), "--unsafe-no-fsync",
		"--data-dir="+filepath.Join(hostDir("control"), "etcd"),
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380")
}

// StartAPIServer starts the API server and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	// Its host has no kube-proxy: it reaches aggregated API servers at their endpoints.
	if err := c.control.begin("kube-apiserver", c.tool("kube-apiserver"), append(apiServerFlags(controlSite), "--enable-aggregator-routing=true")...); err != nil {
		return err
	}
	return waitAPIServer(ctx, c.control, APIServer)
}

// apiServerFlags are the flags of an API server on a host.
func apiServerFlags(on site) []string {
	return []string{
		"--etcd-servers=" + etcdURL,
		"--advertise-address=" + on.addr4.String(), "--secure-port=" + fmt.Sprint(APIServer.Port()),
		"--service-cluster-ip-range=" + joined(ServiceRanges),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--client-ca-file=" + pkiFile("ca.crt"),
		"--tls-cert-file=" + pkiFile("apiserver.crt"), "--tls-private-key-file=" + pkiFile("apiserver.key"),
		"--kubelet-client-certificate=" + pkiFile("kubelet-client.crt"), "--kubelet-client-key=" + pkiFile("kubelet-client.key"),
		"--kubelet-certificate-authority=" + pkiFile("ca.crt"),
		// The names of nodes do not resolve.
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + pkiFile("ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pkiFile("front-proxy.crt"), "--proxy-client-key-file=" + pkiFile("front-proxy.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pkiFile("service-account.crt"), "--service-account-signing-key-file=" + pkiFile("service-account.key"),
	}
}

// waitAPIServer waits until the API server that a host reaches at an address is ready.
func waitAPIServer(ctx context.Context, from *Host, at netip.AddrPort) error {
	client, err := apiClient(from)
	if err != nil {
		return err
	}
	return until(ctx, "the API server "+at.String(), upTime, func(ctx context.Context) error { return ready(ctx, client, at) })
}

// StopAPIServer kills the API server and returns when it has ended.
func (c *Cluster) StopAPIServer() error { return c.control.kill("kube-apiserver") }

func (c *Cluster) startControllers() error {
	err := c.control.begin("kube-controller-manager", c.tool("kube-controller-manager"),
		"--kubeconfig="+pkiFile("controllers.conf"), "--authentication-kubeconfig="+pkiFile("controllers.conf"),
		"--authorization-kubeconfig="+pkiFile("controllers.conf"),
		"--service-account-private-key-file="+pkiFile("service-account.key"), "--root-ca-file="+pkiFile("ca.crt"),
		"--use-service-account-credentials=true", "--leader-elect=false", "--node-monitor-grace-period="+NodeGrace.String(),
		// The nodes' ranges are fixed, see nodeSites.
		"--allocate-node-cidrs=false", "--cluster-cidr="+joined(PodRanges), "--service-cluster-ip-range="+joined(ServiceRanges))
	return errors.Join(err, c.control.begin("kube-scheduler", c.tool("kube-scheduler"),
		"--kubeconfig="+pkiFile("scheduler.conf"), "--authentication-kubeconfig="+pkiFile("scheduler.conf"),
		"--authorization-kubeconfig="+pkiFile("scheduler.conf"), "--leader-elect=false"))
}

// apiClient asks API servers from a host, without credentials.
func apiClient(from *Host) (*http.Client, error) {
	ca, err := os.ReadFile(pkiFile("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the cluster's authority: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: from.Dial, TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true,
	}}, nil
}

// DialControl connects to a literal address in the control host's network, for clients
// of the API server that run in this process.
func (c *Cluster) DialControl(ctx context.Context, network, addr string) (net.Conn, error) {
	return c.control.Dial(ctx, network, addr)
}

func ready(ctx context.Context, client *http.Client, at netip.AddrPort) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+at.String()+"/readyz", http.NoBody)
	if err != nil {
		return fmt.Errorf("ask the API server: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the API server: %w", err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the API server says %s: %s", response.Status, text)
	}
	return nil
}

// nodeAPIServer is where an API server on a node is asked on the node itself.
var nodeAPIServer = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), APIServer.Port())

// StartAPIServer starts a second API server, on a node, as kubeadm has it on a control-plane node:
// etcd answers at 127.0.0.1 of the node, and Services are reached through the node's kube-proxy.
// Clients of the Service kubernetes are not led to it. It returns when the API server is ready;
// stop ends it.
func (n *Node) StartAPIServer(ctx context.Context) (stop func() error, err error) {
	etcd, err := n.forward(strings.TrimPrefix(etcdURL, "http://"), n.cluster.control)
	if err != nil {
		return nil, err
	}
	stop = func() error { return errors.Join(n.kill("kube-apiserver"), etcd.Close()) }
	err = n.begin("kube-apiserver", n.cluster.tool("kube-apiserver"), append(apiServerFlags(n.site), "--endpoint-reconciler-type=none")...)
	if err == nil {
		err = waitAPIServer(ctx, n.Host, nodeAPIServer)
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// Kubectl is Cluster.Kubectl by the API server of the node.
func (n *Node) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := n.NetCommand(ctx, n.cluster.tool("kubectl"), append([]string{"--server=https://" + nodeAPIServer.String()}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+AdminConfig, "HOME="+hostDir(n.Name))
	return output(cmd, stdin, "kubectl", args)
}

// forward leads TCP connections to an address of the host to the same address of another one, past
// the network between them, until it is closed. Connections end with either side.
func (h *Host) forward(addr string, to *Host) (io.Closer, error) {
	var l net.Listener
	err := h.Do(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				other, err := to.Dial(context.Background(), "tcp", addr)
				if err != nil {
					return
				}
				defer other.Close()
				go func() {
					_, _ = io.Copy(other, c)
					other.Close()
				}()
				_, _ = io.Copy(c, other)
			}()
		}
	}()
	return l, nil
}
