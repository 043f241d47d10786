package cyclonus

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/mattfenwick/cyclonus/pkg/kube"
	"github.com/mattfenwick/cyclonus/pkg/worker"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
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
	dirty      bool

	// The number of probes, beyond cyclonus's own tables.
	sent, loopback int
	broken         []string
}

var _ kube.IKubernetes = (*cluster)(nil)

func newCluster(g *ground) *cluster {
	return &cluster{
		ground: g, namespaces: map[string]*corev1.Namespace{}, policies: map[string]*networkingv1.NetworkPolicy{},
		pods: map[string]*corev1.Pod{}, services: map[string]*corev1.Service{},
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
			if s, err = c.addPod(key); err != nil {
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

// manifests renders the cluster for the agents. Beside each NetworkPolicy for egress
// there is an FQDNNetworkPolicy without rules for the same pods.
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
		if hasEgress(np) {
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
	if err := c.apply(text); err != nil {
		return err
	}
	c.dirty = false
	return nil
}

// ExecuteRemoteCommand does what cyclonus' own worker would do in a pod: a batch of
// probes, told as JSON.
func (c *cluster) ExecuteRemoteCommand(namespace, pod, _ string, command []string) (string, string, error, error) {
	if len(command) != 3 || command[0] != "/worker" || command[1] != "--jobs" {
		return "", "", nil, fmt.Errorf("command %q is not known", command)
	}
	if err := c.tell(); err != nil {
		c.note(0, 0, fmt.Sprintf("the agents were not told: %v", err))
		return "", "", nil, err
	}
	var batch worker.Batch
	if err := json.Unmarshal([]byte(command[2]), &batch); err != nil {
		return "", "", nil, err
	}
	from := c.ground.pods[namespace+"/"+pod]
	results := make([]*worker.Result, len(batch.Requests))
	for i, r := range batch.Requests {
		results[i] = &worker.Result{Request: r}
		if err := c.request(from, r); err != nil {
			results[i].Error = err.Error()
			if !errors.Is(err, errRefused) {
				c.note(0, 0, err.Error())
			}
		}
	}
	out, err := json.Marshal(results)
	return string(out), "", nil, err
}

// request sends one probe. A pod that was created or labelled in a case has no address
// of its Service in cyclonus' books, so that is looked up here; a pod that asks for
// itself is not sent anything, since cyclonus leaves that out of the comparison.
func (c *cluster) request(from *sited, r *worker.Request) error {
	names := strings.Split(r.Key, "/") // from, container, to, container, protocol, port
	if len(names) != 8 {
		return fmt.Errorf("key %q is not known", r.Key)
	}
	to := c.ground.pods[names[3]+"/"+names[4]]
	if to == nil {
		return missing("pod", r.Key)
	}
	if from == to {
		c.note(0, 1, "")
		return nil
	}
	c.note(1, 0, "")
	at := c.addr(to.service4, to.service6)
	if r.Host != "" {
		var err error
		if at, err = netip.ParseAddr(r.Host); err != nil {
			return err
		}
	}
	return c.probe(from, to, netip.AddrPortFrom(at, uint16(r.Port)), r.Protocol)
}

func (c *cluster) note(sent, loopback int, broken string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.loopback = c.sent+sent, c.loopback+loopback
	if broken != "" {
		c.broken = append(c.broken, broken)
	}
}
