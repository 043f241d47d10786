package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/miekg/dns"
)

// The images of a cluster.
const (
	// PodImage is the test pods' program; containerd uses it for sandboxes too.
	PodImage   = "namegate.test/testpod:e2e"
	dnsImage   = "namegate.test/coredns:e2e"
	podTarball = imageDir + "/testpod.tar"
	dnsTarball = imageDir + "/coredns.tar"
	podProgram = "/testpod"
)

func (c *Cluster) writeImages() error {
	if err := os.MkdirAll(imageDir, 0o755); err != nil {
		return fmt.Errorf("make the folder of images: %w", err)
	}
	for tarball, i := range map[string]image{
		podTarball: {tag: PodImage, program: c.tool("testpod"), path: podProgram, args: []string{"sleep"}},
		dnsTarball: {tag: dnsImage, program: c.tool("coredns"), path: "/coredns"},
	} {
		if err := i.save(tarball); err != nil {
			return err
		}
	}
	return nil
}

// clusterDNS is CoreDNS as clusters have it: two replicas on different nodes
// behind the Service kube-dns. One that ends answers for five more seconds,
// while the Service forgets it.
var clusterDNS = fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:coredns"}
rules:
- {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:coredns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
        errors
        health {
            lameduck 5s
        }
        ready
        kubernetes cluster.local in-addr.arpa ip6.arpa {
            pods insecure
            fallthrough in-addr.arpa ip6.arpa
            ttl 30
        }
        forward . %[1]s
        cache 30 {
            disable success cluster.local
        }
        loadbalance
    }
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  selector: {k8s-app: kube-dns}
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv4, IPv6]
  clusterIP: %[2]s
  clusterIPs: ["%[2]s", "%[3]s"]
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53, protocol: TCP}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  replicas: 2
  strategy: {rollingUpdate: {maxUnavailable: 1}}
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      priorityClassName: system-cluster-critical
      dnsPolicy: Default
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {k8s-app: kube-dns}}}
      containers:
      - name: coredns
        image: %[4]s
        imagePullPolicy: Never
        args: [-conf, /etc/coredns/Corefile]
        ports:
        - {name: dns, containerPort: 53, protocol: UDP}
        - {name: dns-tcp, containerPort: 53, protocol: TCP}
        readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}
        volumeMounts: [{name: config, mountPath: /etc/coredns}]
      volumes: [{name: config, configMap: {name: coredns}}]
`, Resolver4, DNS4, DNS6, dnsImage)

func (c *Cluster) applyDNS(ctx context.Context) error {
	return until(ctx, "the API server to take the cluster's DNS", upTime, func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, clusterDNS, "apply", "-f", "-")
		return err
	})
}

// waitDNS waits until CoreDNS is ready and answers each node through the Service.
func (c *Cluster) waitDNS(ctx context.Context) error {
	if _, err := c.Kubectl(ctx, "", "rollout", "status", "-n", "kube-system", "deployment/coredns", "--timeout=120s"); err != nil {
		return err
	}
	for _, n := range c.Nodes {
		err := until(ctx, "the cluster's DNS on "+n.Name, upTime, func(ctx context.Context) error {
			return n.resolves(ctx, "kubernetes.default.svc.cluster.local.")
		})
		if err != nil {
			return err
		}
	}
	return os.WriteFile(upFile, []byte(strconv.Itoa(os.Getpid())), 0o644)
}

func (n *Node) resolves(ctx context.Context, name string) error {
	conn, err := n.Dial(ctx, "udp", netip.AddrPortFrom(DNS4, 53).String())
	if err != nil {
		return err
	}
	defer conn.Close()
	client := dns.Client{Timeout: 500 * time.Millisecond}
	r, _, err := client.ExchangeWithConnContext(ctx, new(dns.Msg).SetQuestion(name, dns.TypeA), &dns.Conn{Conn: conn})
	if err != nil {
		return err
	}
	if len(r.Answer) == 0 {
		return fmt.Errorf("%s has no address: %s", name, dns.RcodeToString[r.Rcode])
	}
	return nil
}
