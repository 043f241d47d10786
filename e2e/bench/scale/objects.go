package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
)

const (
	// podsOfNode is how many pods a Node has at most: the kubelet's default is 110.
	podsOfNode = 250
	// ownNamespace and daemonSet are Namegate's.
	ownNamespace, daemonSet = "namegate-system", "namegate"
	// policiesOfNamespace is how many policies are in one namespace.
	policiesOfNamespace = 5
)

var policies = schema.GroupVersionResource{Group: "namegate.io", Version: "v1alpha1", Resource: "fqdnnetworkpolicies"}

func nodeName(i int) string      { return fmt.Sprintf("node-%d", i) }
func podName(i int) string       { return fmt.Sprintf("pod-%d", i) }
func namespaceName(i int) string { return fmt.Sprintf("team-%d", i) }

// namespaces is how many there are.
func (o options) namespaces() int {
	return (o.policies + policiesOfNamespace - 1) / policiesOfNamespace
}

// namespaceOf is a pod's. The pods of a Node are in as many namespaces as there are, or as it has pods.
func (o options) namespaceOf(pod int) int { return (pod + pod/o.nodes) % o.namespaces() }

// peerNamespace is a NetworkPolicy's: the NetworkPolicies are spread over the namespaces.
func (o options) peerNamespace(i int) int {
	return i * max(1, o.namespaces()/o.peers) % o.namespaces()
}

// address is a pod's, unique below 10.128.0.0/9.
func address(i int) string { return fmt.Sprintf("10.%d.%d.%d", 128+i>>16, i>>8&0xff, i&0xff) }

// fill creates the objects of the cluster.
func (b *bench) fill(ctx context.Context) error {
	crds, err := filepath.Glob("crds/namegate.io_*.yaml")
	if err != nil || len(crds) == 0 {
		return fmt.Errorf("find the CRDs below crds, in the repository's folder: %w", err)
	}
	for _, file := range crds {
		if err := b.kubectl(ctx, "create", "-f", file); err != nil {
			return err
		}
	}
	if err := b.kubectl(ctx, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"); err != nil {
		return err
	}
	for _, part := range []struct {
		what   string
		n      int
		create func(context.Context, int) error
	}{
		{"namespaces", b.namespaces() + 1, b.createNamespace},
		{"Nodes with Leases", b.nodes, b.createNode},
		{"policies", b.policies, b.createPolicy},
		{"NetworkPolicies", b.peers, b.createNetworkPolicy},
	} {
		b.Note("creating %d %s", part.n, part.what)
		began := time.Now()
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(b.writers)
		for i := range part.n {
			g.Go(func() error { return part.create(ctx, i) })
			if ctx.Err() != nil {
				break
			}
		}
		if err := g.Wait(); err != nil {
			return fmt.Errorf("create %s: %w", part.what, err)
		}
		b.Note("%d %s in %v", part.n, part.what, time.Since(began).Round(time.Second))
	}
	if err := b.createPods(ctx); err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	sets := b.api.client.AppsV1().DaemonSets(ownNamespace)
	set, err := sets.Create(ctx, agentsSet(), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the DaemonSet: %w", err)
	}
	// As the controller counts them.
	set.Status.DesiredNumberScheduled = int32(b.nodes)
	if _, err := sets.UpdateStatus(ctx, set, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("count the agents of the DaemonSet: %w", err)
	}
	return nil
}

// kubectl runs the program in the benchmark's namespace.
func (b *bench) kubectl(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(b.programs, "kubectl"), append([]string{"--server=https://" + apiServer, "--token=" + token, "--insecure-skip-tls-verify"}, args...)...)
	var out []byte
	err := b.host.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", args[0], err, out)
	}
	return nil
}

func (b *bench) createNamespace(ctx context.Context, i int) error {
	name := ownNamespace
	if i > 0 {
		name = namespaceName(i - 1)
	}
	_, err := b.api.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": name}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// Pods are admitted with the account that a controller makes in a cluster.
	_, err = b.api.client.CoreV1().ServiceAccounts(name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	return err
}

// createNode creates a Node and the Lease of its kubelet.
func (b *bench) createNode(ctx context.Context, i int) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{"kubernetes.io/hostname": nodeName(i), "kubernetes.io/os": "linux"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.1.%d.%d", i>>8, i&0xff)}}, Images: images(),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}}}}
	if _, err := b.api.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return err
	}
	holder, seconds := nodeName(i), int32(40)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds}}
	_, err := b.api.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{})
	return err
}

// images are as many as a kubelet reports by default, each by a digest and a tag.
func images() (list []corev1.ContainerImage) {
	for i := range 50 {
		name := fmt.Sprintf("registry.example.org/team-%d/app-%d", i%7, i)
		list = append(list, corev1.ContainerImage{Names: []string{fmt.Sprintf("%s@sha256:%064x", name, i), name + ":1.2.3"}, SizeBytes: 50e6})
	}
	return list
}

// createPods creates the first pod by the API server, and the others as copies of it in etcd.
// By the API server, 150,000 of them take most of an hour on two busy cores.
func (b *bench) createPods(ctx context.Context) error {
	b.Note("creating %d pods", b.pods)
	began := time.Now()
	first, err := b.createPod(ctx, b.pod(0))
	if err != nil {
		return err
	}
	g, writing := errgroup.WithContext(ctx)
	g.SetLimit(2)
	for from := 1; from < b.pods; from += putsAtOnce {
		g.Go(func() error {
			values := map[string][]byte{}
			for i := from; i < min(from+putsAtOnce, b.pods); i++ {
				p, like := b.pod(i), first.DeepCopy()
				like.Namespace, like.Name, like.Labels, like.UID = p.Namespace, p.Name, p.Labels, uuid.NewUUID()
				like.ResourceVersion, like.Spec.NodeName, like.Status.PodIP, like.Status.PodIPs = "", p.Spec.NodeName, p.Status.PodIP, p.Status.PodIPs
				value, err := stored(like)
				if err != nil {
					return err
				}
				values["/registry/pods/"+p.Namespace+"/"+p.Name] = value
			}
			return b.put(writing, values)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	b.Note("%d pods in %v", b.pods, time.Since(began).Round(time.Second))
	return b.cached(ctx)
}

// cached waits until the API server has the last pod from etcd.
func (b *bench) cached(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	last := b.pod(b.pods - 1)
	for {
		// Resource version 0: from the API server's cache.
		_, err := b.api.client.CoreV1().Pods(last.Namespace).Get(ctx, last.Name, metav1.GetOptions{ResourceVersion: "0"})
		if err == nil || !apierrors.IsNotFound(err) {
			return err
		}
		if err := b.pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// pod is a running pod with an address. Each policy selects the pods of one label in its namespace.
func (b *bench) pod(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceName(b.namespaceOf(i)), Name: podName(i), Labels: map[string]string{"app": fmt.Sprintf("app-%d", i/b.namespaces()%(2*policiesOfNamespace))}},
		Spec:       corev1.PodSpec{NodeName: nodeName(i % b.nodes), Containers: []corev1.Container{{Name: "app", Image: "registry.example.org/app:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address(i), PodIPs: []corev1.PodIP{{IP: address(i)}}},
	}
}

func (b *bench) createPod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	pods := b.api.client.CoreV1().Pods(p.Namespace)
	created, err := pods.Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	created.Status.Phase, created.Status.PodIP, created.Status.PodIPs = p.Status.Phase, p.Status.PodIP, p.Status.PodIPs
	return pods.UpdateStatus(ctx, created, metav1.UpdateOptions{})
}

// createPolicy creates a policy for half of the labels of its namespace.
func (b *bench) createPolicy(ctx context.Context, i int) error {
	client, err := dynamic.NewForConfig(b.config(nil))
	if err != nil {
		return err
	}
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "namegate.io/v1alpha1", "kind": "FQDNNetworkPolicy", "metadata": map[string]any{"name": fmt.Sprintf("policy-%d", i)},
		"spec": map[string]any{
			"podSelector": map[string]any{"matchLabels": map[string]any{"app": fmt.Sprintf("app-%d", i%policiesOfNamespace)}},
			"egress": []any{map[string]any{
				"matches": []any{map[string]any{"name": fmt.Sprintf("api-%d.example.org", i)}, map[string]any{"pattern": fmt.Sprintf("*.zone-%d.example.org", i)}},
				"ports":   []any{map[string]any{"protocol": "TCP", "port": int64(443)}},
			}},
		},
	}}
	_, err = client.Resource(policies).Namespace(namespaceName(i/policiesOfNamespace)).Create(ctx, policy, metav1.CreateOptions{})
	return err
}

// createNetworkPolicy creates a NetworkPolicy that lets pods of a policy reach others of the namespace.
func (b *bench) createNetworkPolicy(ctx context.Context, i int) error {
	label := func(n int) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprintf("app-%d", n)}}
	}
	to := label(policiesOfNamespace + i%policiesOfNamespace)
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("peers-%d", i)}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: label(i % policiesOfNamespace), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{PodSelector: &to}}}},
	}}
	_, err := b.api.client.NetworkingV1().NetworkPolicies(namespaceName(b.peerNamespace(i))).Create(ctx, policy, metav1.CreateOptions{})
	return err
}

// agentsSet is the DaemonSet that agents look at.
func agentsSet() *appsv1.DaemonSet {
	labels := map[string]string{"app": daemonSet}
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: daemonSet}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "registry.example.org/namegate:1"}}}},
	}}
}
