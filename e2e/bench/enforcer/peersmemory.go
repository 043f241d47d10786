package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

// thisNode is the name of the node with the agent.
const thisNode = "node-here"

// peersMemory measures the agent of a cluster, which reads all pods since its
// NetworkPolicies need them.
func (b *bench) peersMemory() (err error) {
	n, err := b.newNode("peers-memory", clientNumber, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.remove()) }()
	l, err := n.Node.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	s := newAPIServer(peerCluster())
	s.serve(l)
	defer func() { err = errors.Join(err, s.close()) }()
	kubeconfig := filepath.Join(n.dir, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"http://%s"}}],
"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`, l.Addr())
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		return err
	}
	if n.world, err = n.ServeWorld(scattered); err != nil {
		return err
	}
	n.agent, err = n.NewAgent(b.agent, n.dir, corefile, "--source", "kube", "--kubeconfig", kubeconfig, "--node-name", thisNode,
		"--namespace", "namegate-system", "--pod-name", "agent", "--daemonset", "namegate")
	if err != nil {
		return err
	}
	if err := n.agent.Start(); err != nil {
		return err
	}
	if err := n.agent.WaitFor("the policies", func(s lab.Status) bool { return s.InSync && s.Enforcer.Selected == maxPods }); err != nil {
		return err
	}
	if err := n.peered(); err != nil {
		return err
	}
	if err := b.memory(n, peersState+", at once"); err != nil {
		return err
	}
	// What reading everything needed goes back to the machine within minutes.
	time.Sleep(settled)
	return b.memory(n, peersState)
}

// settled is how long the agent is left alone after it has read the cluster.
const settled = 30 * time.Second

// peered tells whether the kernel has sets of peers, with all that should be in them.
func (n *node) peered() error {
	out, err := n.Node.Run("ipset", "list", "-t")
	if err != nil {
		return err
	}
	if sets := strings.Count(out, "Name: NG4-p-"); sets < networkPolicies/2 {
		return fmt.Errorf("the kernel has %d sets of peers", sets)
	}
	return nil
}

// newAPIServer has a cluster.
func newAPIServer(in compile.Input) *apiServer {
	s := &apiServer{node: thisNode, own: map[string]bool{}, objects: map[string][]json.RawMessage{}, kinds: map[string]string{
		"pods": "v1 Pod", "namespaces": "v1 Namespace", "services": "v1 Service", "nodes": "v1 Node", "configmaps": "v1 ConfigMap",
		"endpointslices": "discovery.k8s.io/v1 EndpointSlice", "networkpolicies": "networking.k8s.io/v1 NetworkPolicy",
		"leases": "coordination.k8s.io/v1 Lease", "daemonsets": "apps/v1 DaemonSet",
		v1alpha1.Resource: v1alpha1.GroupVersion().String() + " " + v1alpha1.Kind,
	}}
	add := func(resource string, o any) {
		text, err := json.Marshal(o)
		if err != nil {
			panic(err) // an object of the API
		}
		s.objects[resource] = append(s.objects[resource], text)
	}
	for name, labels := range in.Namespaces {
		add("namespaces", &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	for i := range in.Policies {
		p := in.Policies[i]
		p.APIVersion, p.Kind, p.UID = v1alpha1.GroupVersion().String(), v1alpha1.Kind, "policy"
		add(v1alpha1.Resource, &p)
	}
	for _, p := range in.NetworkPolicies {
		add("networkpolicies", p)
	}
	for i := range in.Pods {
		s.own[in.Pods[i].Name] = true
		add("pods", fullPod(&in.Pods[i], thisNode))
	}
	for _, p := range in.Remote {
		add("pods", fullPod(p, p.NodeName))
	}
	add("nodes", &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: thisNode, UID: "node"},
		Spec: corev1.NodeSpec{PodCIDRs: []string{"10.1.0.0/24", "fd00:1::/64"}}})
	return s
}

// fullPod is a pod as large as they are: about 6 KiB.
func fullPod(p *policy.Pod, node string) *corev1.Pod {
	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: "uid-" + "0123456789", Labels: p.Labels, ResourceVersion: "1",
			Annotations:   map[string]string{"checksum/config": strings.Repeat("0123456789abcdef", 4), "example.org/notes": strings.Repeat("what somebody noted of it ", 40)},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:text":"` + strings.Repeat("f:conditions ", 120) + `"}}`)}},
		},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
	}
	for i := range 2 {
		c := corev1.Container{Name: fmt.Sprintf("c%d", i), Image: "registry.test/team/application:v1.2.3"}
		for j := range 20 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", j), Value: strings.Repeat("value ", 5)})
		}
		out.Spec.Containers = append(out.Spec.Containers, c)
	}
	for _, port := range p.Ports {
		out.Spec.Containers[0].Ports = append(out.Spec.Containers[0].Ports, corev1.ContainerPort{Name: port.Name, ContainerPort: int32(port.Port)})
	}
	for _, a := range p.IPs {
		out.Status.PodIPs = append(out.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	out.Status.PodIP = netip.Addr.String(p.IPs[0])
	return out
}
