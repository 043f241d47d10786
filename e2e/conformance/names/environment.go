package names

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/network-policy-api/conformance/utils/kubernetes"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
)

// Options describe the cluster.
type Options struct {
	// Image is the reference of the image of this module, which every node has or can pull.
	Image string
	// Zone is a domain that does not exist outside the tests.
	Zone string
	// CoreDNS is the namespace and the name of CoreDNS's ConfigMap and Deployment, as
	// "kube-system/coredns". Where it is empty, something else has to make the cluster's
	// resolver forward the zone to the Service "dns" of the tests' namespace.
	CoreDNS string
	// Resolvers are addresses of the resolver that pods ask, beside the pods of kube-system:
	// networks that rules for DNS accept.
	Resolvers []string
	// ClusterDomain is that of the names of Services and pods.
	ClusterDomain string
	// Outside is a network of IPv4 beyond the cluster with at least 512 addresses, of which
	// each answers on TCP at Port and OtherPort: lines that a client sends come back.
	Outside netip.Prefix
	// Outside6 is one of IPv6, or not valid: the test for IPv6 is skipped then.
	Outside6        netip.Prefix
	Port, OtherPort int32
	// Slack is how long an implementation may leave an address open beyond the TTL.
	Slack time.Duration
}

// Namespace is where the pods of the tests are.
const Namespace = "network-policy-conformance-names"

// Environment is what the tests share.
type Environment struct {
	Options
	suite *suite.ConformanceTestSuite
}

// New prepares the cluster. Everything that it makes goes with t, where the suite is to clean
// up.
func New(t *testing.T, s *suite.ConformanceTestSuite, o Options) *Environment {
	t.Helper()
	e := &Environment{Options: o, suite: s}
	e.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}})
	e.create(t, &corev1.ConfigMap{ObjectMeta: e.meta("zone"), Data: map[string]string{"zone": e.zone(), "forged": e.forged()}})
	dns, servers := map[string]string{"app": "dns"}, map[string]string{"app": "server"}
	e.create(t, e.server("dns", dns, 53, "dns", "--zone", "/zone/zone"))
	e.create(t, e.server("forged", map[string]string{"app": "forged"}, 53, "dns", "--zone", "/zone/forged"))
	for _, name := range []string{"server-0", "server-1"} {
		e.create(t, e.server(name, servers, e.Port, "echo", "--port", fmt.Sprint(o.Port), "--port", fmt.Sprint(o.OtherPort)))
	}
	e.create(t, &corev1.Service{ObjectMeta: e.meta("headless"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: servers}})
	service := &corev1.Service{ObjectMeta: e.meta("dns"), Spec: corev1.ServiceSpec{Selector: dns, Ports: []corev1.ServicePort{
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP},
	}}}
	e.create(t, service)
	for _, name := range []string{"dns", "forged", "server-0", "server-1"} {
		e.ready(t, name)
	}
	t.Logf("the zone %s is served at %s", o.Zone, service.Spec.ClusterIP)
	if o.CoreDNS != "" {
		e.forward(t, service.Spec.ClusterIP)
	}
	probe := e.client(t, "zone")
	probe.resolves(e.name("exact"))
	return e
}

func (e *Environment) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: Namespace, Name: name}
}

// pod is one that runs a subcommand of the image. Its container has the name that upstream's
// functions expect.
func (e *Environment) pod(name string, labels map[string]string, args ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: e.meta(name)}
	p.Labels = labels
	at := corev1.VolumeMount{Name: "zone", MountPath: "/zone"}
	p.Spec.Containers = []corev1.Container{{
		Name: container(name), Image: e.Image, ImagePullPolicy: corev1.PullIfNotPresent, Args: args, VolumeMounts: []corev1.VolumeMount{at},
	}}
	p.Spec.Volumes = []corev1.Volume{{Name: at.Name, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "zone"}},
	}}}
	quick, none := int64(1), false
	p.Spec.TerminationGracePeriodSeconds, p.Spec.AutomountServiceAccountToken, p.Spec.EnableServiceLinks = &quick, &none, &none
	return p
}

// server is a pod that is not ready before its node has connected to it at a TCP port. Where
// pods are on a bridge and an address is used again, the node may know the hardware address of
// the former pod for up to a minute, until when every packet is lost.
func (e *Environment) server(name string, labels map[string]string, port int32, args ...string) *corev1.Pod {
	p := e.pod(name, labels, args...)
	p.Spec.Containers[0].StartupProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}},
		PeriodSeconds: 1, FailureThreshold: 180,
	}
	return p
}

// container is the name of the container that upstream's RunCommandFromPod runs commands in.
func container(pod string) string { return pod[:len(pod)-1] + "client" }

// create creates an object, which goes with t.
func (e *Environment) create(t *testing.T, o client.Object) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), e.suite.TimeoutConfig.CreateTimeout)
	defer cancel()
	require.NoErrorf(t, e.suite.Client.Create(ctx, o), "error creating %T %s", o, o.GetName())
	if !e.suite.Cleanup {
		return
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.suite.TimeoutConfig.DeleteTimeout)
		defer cancel()
		require.NoErrorf(t, client.IgnoreNotFound(e.suite.Client.Delete(ctx, o)), "error deleting %T %s", o, o.GetName())
	})
}

// ready waits until a pod is ready and returns it.
func (e *Environment) ready(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, e.suite.TimeoutConfig.NamespacesMustBeReady, func() error {
		pod = kubernetes.GetPod(t, e.suite.Client, Namespace, name, e.suite.TimeoutConfig.GetTimeout)
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("pod %s is not ready", name)
	})
	return pod
}

// forward makes CoreDNS forward the zone to a resolver, and takes that back with t.
func (e *Environment) forward(t *testing.T, to string) {
	t.Helper()
	namespace, name, _ := strings.Cut(e.CoreDNS, "/")
	block := fmt.Sprintf("%s:53 {\n    errors\n    forward . %s\n}\n", e.Zone, to)
	change := func(edit func(string) string) {
		ctx, cancel := context.WithTimeout(context.Background(), e.suite.TimeoutConfig.CreateTimeout)
		defer cancel()
		config := &corev1.ConfigMap{}
		require.NoError(t, e.suite.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, config), "error getting CoreDNS's ConfigMap")
		config.Data["Corefile"] = edit(config.Data["Corefile"])
		require.NoError(t, e.suite.Client.Update(ctx, config), "error updating CoreDNS's ConfigMap")
		e.restart(t, namespace, name)
	}
	change(func(text string) string { return strings.TrimRight(text, "\n") + "\n" + block })
	t.Cleanup(func() { change(func(text string) string { return strings.ReplaceAll(text, block, "") }) })
}

// restart rolls a Deployment out anew and waits for it.
func (e *Environment) restart(t *testing.T, namespace, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), e.suite.TimeoutConfig.NamespacesMustBeReady)
	defer cancel()
	deployments := e.suite.ClientSet.AppsV1().Deployments(namespace)
	d, err := deployments.Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err, "error getting CoreDNS's Deployment")
	if d.Spec.Template.Annotations == nil {
		d.Spec.Template.Annotations = map[string]string{}
	}
	d.Spec.Template.Annotations["network-policy-conformance/restarted"] = time.Now().Format(time.RFC3339Nano)
	d, err = deployments.Update(ctx, d, metav1.UpdateOptions{})
	require.NoError(t, err, "error restarting CoreDNS")
	generation := d.Generation
	eventually(t, e.suite.TimeoutConfig.NamespacesMustBeReady, func() error {
		d, err := deployments.Get(ctx, name, metav1.GetOptions{})
		if err == nil && (d.Status.ObservedGeneration < generation || d.Status.Replicas != *d.Spec.Replicas || d.Status.UpdatedReplicas != *d.Spec.Replicas || d.Status.AvailableReplicas != *d.Spec.Replicas) {
			err = fmt.Errorf("CoreDNS is not rolled out: %+v", d.Status)
		}
		return err
	})
}

// eventually waits until f has no error.
func eventually(t *testing.T, within time.Duration, f func() error) {
	t.Helper()
	end := time.Now().Add(within)
	for {
		err := f()
		if err == nil {
			return
		}
		require.Falsef(t, time.Now().After(end), "not within %v: %v", within, err)
		time.Sleep(100 * time.Millisecond)
	}
}

// run runs a subcommand in a pod and reads the JSON that it prints.
func run[T any](e *Environment, pod string, args ...string) (result T, err error) {
	out, said, err := kubernetes.RunCommandFromPod(e.suite.ClientSet, &e.suite.KubeConfig, Namespace, pod, append([]string{"/agnhost"}, args...))
	if err != nil {
		return result, fmt.Errorf("run %q in pod %s: %w: %s", args, pod, err, said)
	}
	if out == "" {
		return result, nil
	}
	return result, json.Unmarshal([]byte(out), &result)
}
