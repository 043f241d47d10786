package hostfiles

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// kubeconfig is a kubeconfig of a server.
func kubeconfig(server string, more ...string) string {
	return `apiVersion: v1
kind: Config
clusters:
- name: kubernetes
  cluster:
    certificate-authority-data: bm9uZQ==
    server: ` + server + "\n" + strings.Join(more, "\n") + `
contexts:
- {name: node, context: {cluster: kubernetes, user: node}}
current-context: node
users:
- name: node
  user: {client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem, client-key: /var/lib/kubelet/pki/kubelet-client-current.pem}
`
}

const kubeadmUnit = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_KUBEADM_ARGS ${KUBELET_EXTRA_ARGS}
`

func TestKubelet(t *testing.T) {
	kubeadm := map[string]string{"/etc/kubernetes/kubelet.conf": kubeconfig("https://192.0.2.10:6443")}
	eks := map[string]string{
		"/var/lib/kubelet/kubeconfig": kubeconfig("https://0123456789ABCDEF.gr7.eu-central-1.eks.test"),
		"/etc/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet --kubeconfig=/var/lib/kubelet/kubeconfig \\\n" +
			"  --image-credential-provider-config /etc/eks/image-credential-provider/config.json --image-credential-provider-bin-dir=/etc/eks\n",
	}
	k3s := map[string]string{"/var/lib/rancher/k3s/agent/kubelet.kubeconfig": kubeconfig("https://127.0.0.1:6444")}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string
		local bool
		creds bool
	}{
		{"kubeadm", kubeadm, []string{"192.0.2.10 tcp/6443"}, false, false},
		{"kubeadm with its unit below /usr", with(kubeadm, "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", kubeadmUnit,
			"/var/lib/kubelet/kubeadm-flags.env", `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock"`), []string{"192.0.2.10 tcp/6443"}, false, false},
		{"a node that joins", map[string]string{"/etc/kubernetes/bootstrap-kubelet.conf": kubeconfig("https://api.cluster.test:6443")}, []string{"api.cluster.test tcp/6443"}, false, false},
		{"both", with(kubeadm, "/etc/kubernetes/bootstrap-kubelet.conf", kubeconfig("https://192.0.2.10:6443")), []string{"192.0.2.10 tcp/6443", "192.0.2.10 tcp/6443"}, false, false},
		{"IPv6", map[string]string{"/etc/kubernetes/kubelet.conf": kubeconfig("https://[2001:db8::10]:6443")}, []string{"2001:db8::10 tcp/6443"}, false, false},
		{"IPv6 without a port", map[string]string{"/etc/kubernetes/kubelet.conf": kubeconfig("https://[2001:db8::10]")}, []string{"2001:db8::10 tcp/443"}, false, false},
		{"EKS", eks, []string{"0123456789abcdef.gr7.eu-central-1.eks.test tcp/443"}, false, true},
		{"a name with a dot, without a scheme", map[string]string{"/var/lib/kubelet/kubeconfig": kubeconfig("API.Cluster.Test.:8443")}, []string{"api.cluster.test tcp/8443"}, false, false},
		{"proxy-url", map[string]string{"/etc/kubernetes/kubelet.conf": kubeconfig("https://192.0.2.10:6443", "    proxy-url: http://user:secret@proxy.test:3128")},
			[]string{"192.0.2.10 tcp/6443", "proxy.test tcp/3128"}, false, false},
		{"proxy of a drop-in", with(kubeadm, "/etc/systemd/system/kubelet.service.d/proxy.conf",
			"[Service]\nEnvironment=\"HTTPS_PROXY=http://proxy.test:3128/\" NO_PROXY=10.0.0.0/8\nEnvironment=http_proxy=192.0.2.9\n"), []string{"proxy.test tcp/3128", "192.0.2.9 tcp/80", "192.0.2.10 tcp/6443"}, false, false},
		{"proxy of all services", with(kubeadm, "/etc/systemd/system.conf.d/proxy.conf", "[Manager]\nDefaultEnvironment=HTTPS_PROXY=http://proxy.test\n"),
			[]string{"proxy.test tcp/80", "192.0.2.10 tcp/6443"}, false, false},
		{"proxy on the node", with(kubeadm, "/etc/default/kubelet", "HTTPS_PROXY=http://127.0.0.1:3128\n"), []string{"192.0.2.10 tcp/6443"}, false, false},
		{"proxy in k3s's file", with(k3s, "/etc/systemd/system/k3s-agent.service", "[Service]\nEnvironmentFile=-/etc/systemd/system/k3s-agent.service.env\nExecStart=/usr/local/bin/k3s agent\n",
			"/etc/systemd/system/k3s-agent.service.env", "K3S_TOKEN=secret\nHTTPS_PROXY='socks5://proxy.test'\n"), []string{"proxy.test tcp/1080"}, true, false},
		{"k3s, a server", k3s, nil, true, false},
		{"k3s, an agent", with(k3s, "/var/lib/rancher/k3s/agent/etc/k3s-agent-load-balancer.json",
			`{"ServerURL":"https://k3s.test:6443","ServerAddresses":["192.0.2.11:6443","[2001:db8::11]:6443"],"Listener":null}`),
			[]string{"192.0.2.11 tcp/6443", "2001:db8::11 tcp/6443", "k3s.test tcp/6443"}, false, false},
		{"RKE2", map[string]string{"/var/lib/rancher/rke2/agent/kubelet.kubeconfig": kubeconfig("https://127.0.0.1:6443"),
			"/var/lib/rancher/rke2/agent/etc/rke2-agent-load-balancer.json":            `{"ServerURL":"https://192.0.2.11:9345","ServerAddresses":["192.0.2.11:9345"]}`,
			"/var/lib/rancher/rke2/agent/etc/rke2-api-server-agent-load-balancer.json": `{"ServerURL":"https://192.0.2.11:6443","ServerAddresses":["192.0.2.11:6443"]}`},
			[]string{"192.0.2.11 tcp/9345", "192.0.2.11 tcp/6443"}, false, false},
		{"MicroK8s", map[string]string{"/var/snap/microk8s/current/credentials/kubelet.config": kubeconfig("https://127.0.0.1:16443")}, nil, true, false},
		{"a place of its own", map[string]string{"/srv/kubelet.yaml": kubeconfig("https://192.0.2.12:6443"), "/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--v=2 --kubeconfig=/srv/kubelet.yaml\n"},
			[]string{"192.0.2.12 tcp/6443"}, false, false},
		{"an empty file beside", with(kubeadm, "/var/lib/kubelet/kubeconfig", "\n"), []string{"192.0.2.10 tcp/6443"}, false, false},
		{"a folder of a mount", with(kubeadm, "/var/lib/kubelet/kubeconfig/x", "y"), []string{"192.0.2.10 tcp/6443"}, false, false},
	} {
		k, err := host(c.files).Kubelet()
		fatal.If(t, err)
		equal(t, c.name, lines(k.Targets), c.want...)
		if (k.Local != "") != c.local || k.CredentialProvider != c.creds {
			t.Errorf("%s: local %q, credentials %v", c.name, k.Local, k.CredentialProvider)
		}
		if slices.ContainsFunc(k.Targets, func(x target) bool { return strings.Contains(x.Source, "secret") }) {
			t.Errorf("%s: a password in %v", c.name, k.Targets)
		}
	}
}

func TestKubeletErrors(t *testing.T) {
	const at = "/etc/kubernetes/kubelet.conf"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no YAML":     {map[string]string{at: "{"}, "parse /etc/kubernetes/kubelet.conf"},
		"no cluster":  {map[string]string{at: "apiVersion: v1\nkind: Config\n"}, "/etc/kubernetes/kubelet.conf has no cluster"},
		"no server":   {map[string]string{at: kubeconfig(`""`)}, "server of the cluster kubernetes in /etc/kubernetes/kubelet.conf: the URL has no host"},
		"a scheme":    {map[string]string{at: kubeconfig("ftp://api.test")}, "the URL of api.test has no port"},
		"a port":      {map[string]string{at: kubeconfig("https://api.test:0")}, "the URL of api.test has the port 0"},
		"a bad proxy": {map[string]string{at: kubeconfig("https://api.test"), "/etc/default/kubelet": "HTTPS_PROXY=http://u:secret@[x\n"}, "HTTPS_PROXY of kubelet.service: the URL has no host"},
		"empty":       {map[string]string{at: "\n"}, "/etc/kubernetes/kubelet.conf is empty"},
		"a loop":      {map[string]string{at: "-> kubelet.conf"}, "leads through more than 40 links"},
		"a bad list":  {map[string]string{at: kubeconfig("https://api.test"), "/var/lib/rancher/k3s/agent/etc/k3s-agent-load-balancer.json": "x"}, "parse /var/lib/rancher/k3s/agent/etc/k3s-agent-load-balancer.json"},
	} {
		if _, err := host(c.files).Kubelet(); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := host(nil).Kubelet(); !errors.Is(err, ErrNoKubeconfig) {
		t.Errorf("an empty host: %v", err)
	}
}

func TestEtcd(t *testing.T) {
	manifest := "spec:\n  containers:\n  - command:\n    - kube-apiserver\n    - --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt\n    - --etcd-servers="
	for servers, want := range map[string][]string{
		"https://127.0.0.1:2379\n":                                     nil,
		"https://etcd-1.test:2379,https://[2001:db8::5]:2379\n    - x": {"etcd-1.test tcp/2379", "2001:db8::5 tcp/2379"},
	} {
		got, err := host(map[string]string{apiServerManifest: manifest + servers}).Etcd()
		fatal.If(t, err)
		equal(t, servers, lines(got), want...)
	}
	if got, err := host(nil).Etcd(); got != nil || err != nil {
		t.Errorf("without a manifest: %v, %v", got, err)
	}
}
