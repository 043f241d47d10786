package cyclonus

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mattfenwick/cyclonus/pkg/kube"
	"github.com/mattfenwick/cyclonus/pkg/matcher"
	"github.com/mattfenwick/cyclonus/pkg/worker"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/e2e/lab"
)

// cluster is what cyclonus takes for the API server, over the ground: pods are network
// namespaces, and a change is made known to the agents before the next probe.
type cluster struct {
	*ground
	mu         sync.Mutex
	namespaces map[string]*corev1.Namespace
	policies   map[string]*networkingv1.NetworkPolicy // by "namespace/name"
	pods       map[string]*corev1.Pod
	services   map[string]*corev1.Service
	v6         bool
	// enforce: the agents enforce NetworkPolicies in both directions. Else they enforce those for egress, for
	// pods that an FQDNNetworkPolicy selects.
	enforce bool
	dirty   bool
	says    *matcher.Policy // of the policies that the agents know

	// The number of probes by what became of them, beyond cyclonus's own tables.
	sent     map[lab.Outcome]int
	loopback int
	broken   []string
	changing time.Duration
}

var _ kube.IKubernetes = (*cluster)(nil)

func newCluster(g *ground, enforce, v6 bool) *cluster {
	return &cluster{
		ground: g, namespaces: map[string]*corev1.Namespace{}, policies: map[string]*networkingv1.NetworkPolicy{},
		pods: map[string]*corev1.Pod{}, services: map[string]*corev1.Service{}, enforce: enforce, v6: v6, dirty: true, sent: map[lab.Outcome]int{},
	}
}

func missing(what, name string) error { return fmt.Errorf("%s %s is not there", what, name) }

// change makes a change and notes that the agents have to be told.
func (c *cluster) change(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirty = true
	return f()
}

func get[T any](c *cluster, of map[string]*T, what, name string) (*T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := of[name]; o != nil {
		return o, nil
	}
	return nil, missing(what, name)
}

// within returns the objects of a namespace.
func within[T any](c *cluster, of map[string]*T, namespace string) []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []T
	for _, key := range slices.Sorted(maps.Keys(of)) {
		if strings.HasPrefix(key, namespace+"/") {
			out = append(out, *of[key])
		}
	}
	return out
}

func (c *cluster) CreateNamespace(n *corev1.Namespace) (*corev1.Namespace, error) {
	n = n.DeepCopy()
	return n, c.change(func() error { c.namespaces[n.Name] = n; n.Labels = withName(n.Labels, n.Name); return nil })
}

// withName adds the label that an API server gives every namespace.
func withName(labels map[string]string, name string) map[string]string {
	out := map[string]string{corev1.LabelMetadataName: name}
	maps.Copy(out, labels)
	return out
}

func (c *cluster) GetNamespace(name string) (*corev1.Namespace, error) {
	return get(c, c.namespaces, "namespace", name)
}

func (c *cluster) SetNamespaceLabels(name string, labels map[string]string) (*corev1.Namespace, error) {
	n, err := c.GetNamespace(name)
	if err != nil {
		return nil, err
	}
	return n, c.change(func() error { n.Labels = withName(labels, name); return nil })
}

func (c *cluster) DeleteNamespace(name string) error {
	for _, p := range within(c, c.pods, name) {
		if err := c.DeletePod(name, p.Name); err != nil {
			return err
		}
	}
	return c.change(func() error {
		mine := func(key string) bool { return strings.HasPrefix(key, name+"/") }
		maps.DeleteFunc(c.policies, func(k string, _ *networkingv1.NetworkPolicy) bool { return mine(k) })
		maps.DeleteFunc(c.services, func(k string, _ *corev1.Service) bool { return mine(k) })
		delete(c.namespaces, name)
		return nil
	})
}

func (c *cluster) GetAllNamespaces() (*corev1.NamespaceList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list corev1.NamespaceList
	for _, name := range slices.Sorted(maps.Keys(c.namespaces)) {
		list.Items = append(list.Items, *c.namespaces[name])
	}
	return &list, nil
}

func (c *cluster) CreateNetworkPolicy(p *networkingv1.NetworkPolicy) (*networkingv1.NetworkPolicy, error) {
	return p, c.change(func() error { c.policies[p.Namespace+"/"+p.Name] = p; return nil })
}

func (c *cluster) UpdateNetworkPolicy(p *networkingv1.NetworkPolicy) (*networkingv1.NetworkPolicy, error) {
	return c.CreateNetworkPolicy(p)
}

func (c *cluster) GetNetworkPoliciesInNamespace(namespace string) ([]networkingv1.NetworkPolicy, error) {
	return within(c, c.policies, namespace), nil
}

func (c *cluster) DeleteNetworkPolicy(namespace, name string) error {
	return c.change(func() error { delete(c.policies, namespace+"/"+name); return nil })
}

func (c *cluster) DeleteAllNetworkPoliciesInNamespace(namespace string) error {
	for _, p := range within(c, c.policies, namespace) {
		if err := c.DeleteNetworkPolicy(namespace, p.Name); err != nil {
			return err
		}
	}
	return nil
}

// CreateService gives the Service the address of its pod's. Its destination is
// independent of labels: the selection of pods is not tested here.
func (c *cluster) CreateService(s *corev1.Service) (*corev1.Service, error) {
	s = s.DeepCopy()
	return s, c.change(func() error {
		p := c.ground.pods[s.Namespace+"/"+strings.TrimPrefix(s.Name, "s-"+s.Namespace+"-")]
		if p == nil {
			return missing("the pod of service", s.Name)
		}
		s.Spec.ClusterIP = c.addr(p.service4, p.service6).String()
		c.services[s.Namespace+"/"+s.Name] = s
		return nil
	})
}

func (c *cluster) addr(v4, v6 netip.Addr) netip.Addr {
	if c.v6 {
		return v6
	}
	return v4
}

func (c *cluster) GetService(namespace, name string) (*corev1.Service, error) {
	return get(c, c.services, "service", namespace+"/"+name)
}

func (c *cluster) DeleteService(namespace, name string) error {
	return c.change(func() error { delete(c.services, namespace+"/"+name); return nil })
}

func (c *cluster) GetServicesInNamespace(namespace string) ([]corev1.Service, error) {
	return within(c, c.services, namespace), nil
}

func (c *cluster) CreatePod(p *corev1.Pod) (*corev1.Pod, error) {
	p = p.DeepCopy()
	return p, c.change(func() error {
		key := p.Namespace + "/" + p.Name
		s := c.ground.pods[key] // there already for the other family
		if s == nil {
			var err error
			c.last++
			if s, err = c.addPod(key, c.last); err != nil {
				return err
			}
		}
		p.UID, p.Spec.NodeName = types.UID(s.Name), s.node.name
		first, second := c.addr(s.Addr4, s.Addr6), c.addr(s.Addr6, s.Addr4)
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: first.String(), PodIPs: []corev1.PodIP{{IP: first.String()}, {IP: second.String()}}}
		c.pods[key] = p
		return nil
	})
}

func (c *cluster) GetPod(namespace, name string) (*corev1.Pod, error) {
	return get(c, c.pods, "pod", namespace+"/"+name)
}

func (c *cluster) DeletePod(namespace, name string) error {
	return c.change(func() error {
		delete(c.pods, namespace+"/"+name)
		return c.removePod(namespace + "/" + name)
	})
}

func (c *cluster) SetPodLabels(namespace, name string, labels map[string]string) (*corev1.Pod, error) {
	p, err := c.GetPod(namespace, name)
	if err != nil {
		return nil, err
	}
	return p, c.change(func() error { p.Labels = labels; return nil })
}

func (c *cluster) GetPodsInNamespace(namespace string) ([]corev1.Pod, error) {
	return within(c, c.pods, namespace), nil
}

// manifests renders the cluster for the agents. Where NetworkPolicies are not enforced by themselves, there is an
// FQDNNetworkPolicy without rules beside each one for egress, for the same pods.
func (c *cluster) manifests() (string, error) {
	var docs []any
	for _, name := range slices.Sorted(maps.Keys(c.namespaces)) {
		n := c.namespaces[name].DeepCopy()
		n.APIVersion, n.Kind = "v1", "Namespace"
		docs = append(docs, n)
	}
	for _, key := range slices.Sorted(maps.Keys(c.pods)) {
		p := c.pods[key].DeepCopy()
		p.APIVersion, p.Kind = "v1", "Pod"
		docs = append(docs, p)
	}
	for _, key := range slices.Sorted(maps.Keys(c.policies)) {
		np := c.policies[key].DeepCopy()
		np.APIVersion, np.Kind = "networking.k8s.io/v1", "NetworkPolicy"
		docs = append(docs, np)
		if !c.enforce && hasEgress(np) {
			docs = append(docs, noNames(np.Namespace, np.Name, np.Spec.PodSelector))
		}
	}
	var b strings.Builder
	for _, d := range docs {
		text, err := yaml.Marshal(d)
		if err != nil {
			return "", err
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.String(), nil
}

// tell brings the agents up to date, once for all that changed since the last probe.
func (c *cluster) tell() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dirty {
		return nil
	}
	text, err := c.manifests()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := c.apply(text); err != nil {
		return err
	}
	c.changing += time.Since(begun)
	c.says = matcher.BuildNetworkPolicies(true, slices.Collect(maps.Values(c.policies)))
	c.dirty = false
	return nil
}

// ExecuteRemoteCommand does what cyclonus' own worker would do in a pod: a batch of
// probes, told as JSON. Those that get no answer wait together, behind the others.
func (c *cluster) ExecuteRemoteCommand(namespace, pod, _ string, command []string) (string, string, error, error) {
	if len(command) != 3 || command[0] != "/worker" || command[1] != "--jobs" {
		return "", "", nil, fmt.Errorf("command %q is not known", command)
	}
	if err := c.tell(); err != nil {
		c.note("", fmt.Sprintf("the agents were not told: %v", err))
		return "", "", nil, err
	}
	var batch worker.Batch
	if err := json.Unmarshal([]byte(command[2]), &batch); err != nil {
		return "", "", nil, err
	}
	results := make([]*worker.Result, len(batch.Requests))
	var silent []func()
	for i, r := range batch.Requests {
		results[i] = &worker.Result{Request: r}
		q, err := c.ask(r)
		switch {
		case err != nil:
			return "", "", nil, err
		case q.want == lab.Silent:
			silent = append(silent, func() { results[i].Error = c.send(q) })
		default:
			results[i].Error = c.send(q)
		}
	}
	var waiting sync.WaitGroup
	for _, send := range silent {
		waiting.Go(send)
	}
	waiting.Wait()
	out, err := json.Marshal(results)
	return string(out), "", nil, err
}

// send sends one probe, and returns "" if it arrived. A pod that was created or labelled in a
// case has no address of its Service in cyclonus' books, so that is looked up here; a pod that
// asks for itself is not sent anything, since cyclonus leaves that out of the comparison.
func (c *cluster) send(q *asked) string {
	if q.from == q.to {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.loopback++
		return ""
	}
	at := c.addr(q.to.service4, q.to.service6)
	if q.Host != "" {
		var err error
		if at, err = netip.ParseAddr(q.Host); err != nil {
			c.note("", err.Error())
			return err.Error()
		}
	}
	got, err := c.probe(q.from, q.to, netip.AddrPortFrom(at, uint16(q.Port)), q.Protocol, patienceFor(q.want))
	if err == nil && got != q.want {
		err = fmt.Errorf("%s to %s %s %s: %s, want %s", q.from.key, q.to.key, q.Protocol, at, got, q.want)
	}
	if err != nil {
		c.note(got, err.Error())
	} else {
		c.note(got, "")
	}
	if got == lab.Answered {
		return ""
	}
	return fmt.Sprintf("%s %v", got, err)
}

// note counts a probe, and what failed in the test.
func (c *cluster) note(got lab.Outcome, broken string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[got]++
	if broken != "" {
		c.broken = append(c.broken, broken)
	}
}
