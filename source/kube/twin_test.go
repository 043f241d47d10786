package kube

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// twin is the content of a cluster as the test put it there, and computes a State of it
// slowly and plainly.
type twin struct {
	pods     map[string]*corev1.Pod
	policies map[string]string // the match, by name
	spaces   map[string]string // the label, by name
	nodes    map[string]string // the address, by name
	services map[string]string // the address, by name
	slices   map[string]*discoveryv1.EndpointSlice
	lets     map[string]string // NetworkPolicies: the label of the pods that they allow, by name
	leads    map[string]string // NetworkPolicies: the label of the namespaces to which they lead, by name
	most     int               // namespaces up to which each has a watch of its own
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// yields tells whether a pod must give its address up to another; pods of our node yield
// only to each other.
func (w *twin) yields(p *corev1.Pod, ip string) bool {
	for _, o := range w.pods {
		if !w.knows(o) {
			continue
		}
		if p.DeletionTimestamp != nil && !p.Spec.HostNetwork && !o.Spec.HostNetwork && !finished(o) && (o.Spec.NodeName == ourNode || p.Spec.NodeName != ourNode) &&
			o.Status.PodIPs[0].IP == ip && p.CreationTimestamp.Before(&o.CreationTimestamp) {
			return true
		}
	}
	return false
}

// wanted are the namespaces whose pods of other nodes can be peers of one of ours.
func (w *twin) wanted() map[string]bool {
	wanted := map[string]bool{}
	for _, p := range w.pods {
		if p.Spec.NodeName != ourNode || p.Spec.HostNetwork || finished(p) || len(w.policies) == 0 {
			continue
		}
		if len(w.lets) > 0 {
			wanted["shop"] = true
		}
		for _, v := range w.leads {
			for name, label := range w.spaces {
				if label == v {
					wanted[name] = true
				}
			}
		}
	}
	return wanted
}

// knows tells whether a pod is of our node, or of a namespace whose pods are known.
func (w *twin) knows(p *corev1.Pod) bool {
	wanted := w.wanted()
	return p.Spec.NodeName == ourNode || wanted[p.Namespace] || len(wanted) > w.most
}

func (w *twin) text() string {
	var b, far strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		p := w.pods[name]
		ip := p.Status.PodIPs[0].IP
		_, err := netip.ParseAddr(ip)
		if p.Spec.NodeName != ourNode {
			// Of other nodes' pods only possible peers are in the State, and only if
			// there may be any.
			if w.knows(p) && err == nil && !finished(p) && !p.Spec.HostNetwork {
				if w.yields(p, ip) {
					ip = ""
				}
				fmt.Fprintln(&far, "far", name, p.Labels, "["+ip+"]", p.Status.Phase)
			}
			continue
		}
		if err != nil || finished(p) || w.yields(p, ip) {
			ip = ""
		}
		fmt.Fprintln(&b, "pod", name, p.Labels, "["+ip+"]", p.Spec.HostNetwork, p.Status.Phase)
	}
	b.WriteString(far.String())
	fmt.Fprintln(&b, w.lets, w.leads)
	fmt.Fprintln(&b, w.policies, w.spaces)
	fmt.Fprintln(&b, slices.Compact(slices.Sorted(maps.Values(w.nodes))), slices.Compact(slices.Sorted(maps.Values(w.services))))
	var ready, ending []string
	for _, s := range w.slices {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil {
				ready = append(ready, e.Addresses[0]+":1053")
			} else {
				ending = append(ending, e.Addresses[0]+":1053")
			}
		}
	}
	if len(ready) == 0 {
		ready = ending
	}
	slices.Sort(ready)
	if ip, ok := w.services[kubeDNS.Name]; ok {
		fmt.Fprintln(&b, "resolver", ip, slices.Compact(ready))
	}
	return b.String()
}

// twinText is a State in the text of the twin.
func twinText(s State) string {
	var b strings.Builder
	for _, p := range s.Input.Pods {
		fmt.Fprintln(&b, "pod", p.Name, p.Labels, p.IPs, p.HostNetwork, p.Phase)
	}
	for _, p := range slices.SortedFunc(slices.Values(s.Input.Remote), func(p, q *policy.Pod) int { return strings.Compare(p.Name, q.Name) }) {
		fmt.Fprintln(&b, "far", p.Name, p.Labels, p.IPs, p.Phase)
	}
	if s.Input.PeersUnknown {
		fmt.Fprintln(&b, "the others are unknown")
	}
	lets, leads := map[string]string{}, map[string]string{}
	for _, n := range s.Input.NetworkPolicies {
		if to := n.Spec.Egress[0].To[0]; to.PodSelector != nil {
			lets[n.Name] = to.PodSelector.MatchLabels["app"]
		} else {
			leads[n.Name] = to.NamespaceSelector.MatchLabels["v"]
		}
	}
	fmt.Fprintln(&b, lets, leads)
	policies, spaces := map[string]string{}, map[string]string{}
	for _, p := range s.Input.Policies {
		policies[p.Name] = *p.Spec.Egress[0].Matches[0].Name
	}
	for name, labels := range s.Input.Namespaces {
		spaces[name] = labels["v"]
	}
	fmt.Fprintln(&b, policies, spaces)
	fmt.Fprintln(&b, s.Cluster.Nodes, s.Cluster.Services)
	if r := s.Cluster.Resolvers[kubeDNS]; len(r.ClusterIPs) > 0 {
		fmt.Fprintln(&b, "resolver", r.ClusterIPs[0], r.Endpoints)
	}
	return b.String()
}

// step does something by chance to both the twin and the API server.
func (w *twin) step(r *rand.Rand, api *apiServer) {
	n := r.IntN(4)
	gone := r.IntN(3) == 0
	switch r.IntN(8) {
	case 0, 1:
		stepPod(api, w.pods, gone, randomPod(r, fmt.Sprint("p", r.IntN(6))))
	case 2:
		name, match := fmt.Sprint("q", n), fmt.Sprintf("%d.example.org", r.IntN(3))
		stepWord(api, w.policies, v1alpha1.Resource+"/shop/", name, gone, match, func() { api.put(v1alpha1.Resource, aPolicy(name, match)) })
	case 3:
		name, v := fmt.Sprint("n", 2+n), fmt.Sprint(r.IntN(3))
		stepWord(api, w.spaces, "namespaces//", name, gone, v, func() { api.put("namespaces", space(name, v)) })
	case 4:
		name, ip := fmt.Sprint("node-", n), fmt.Sprint("192.0.2.", 1+r.IntN(3))
		stepWord(api, w.nodes, "nodes//", name, gone, ip, func() { api.put("nodes", aNode(name, ip)) })
	case 5:
		name, ip := []string{kubeDNS.Name, "a", "b", "c"}[n], fmt.Sprint("10.96.0.", 1+r.IntN(3))
		stepWord(api, w.services, "services/kube-system/", name, gone, ip, func() { api.put("services", aService(kubeDNS.Namespace, name, ip)) })
	case 6:
		name, app := fmt.Sprint("l", n%2), fmt.Sprint(r.IntN(3))
		if n > 1 {
			name := fmt.Sprint("s", n%2)
			stepWord(api, w.leads, "networkpolicies/shop/", name, gone, app, func() {
				api.put("networkpolicies", with(aNetworkPolicy("shop", name, ""), toSpaces(map[string]string{"v": app})))
			})
			return
		}
		stepWord(api, w.lets, "networkpolicies/shop/", name, gone, app, func() { api.put("networkpolicies", aNetworkPolicy("shop", name, app)) })
	case 7:
		s := dnsSlice(fmt.Sprint("s", n), fmt.Sprint("10.0.9.", 1+r.IntN(3)), fmt.Sprint("10.0.9.", 4+r.IntN(3)))
		if r.IntN(2) == 0 {
			conditions(s, "ftt")
		}
		if gone {
			delete(w.slices, s.Name)
			api.remove("endpointslices/kube-system/" + s.Name)
			return
		}
		w.slices[s.Name] = s
		api.put("endpointslices", s)
	}
}

func stepPod(api *apiServer, all map[string]*corev1.Pod, gone bool, p *corev1.Pod) {
	if gone {
		delete(all, p.Name)
		api.remove("pods/" + p.Namespace + "/" + p.Name)
		return
	}
	all[p.Name] = p
	api.put("pods", p)
}

func stepWord(api *apiServer, all map[string]string, path, name string, gone bool, word string, put func()) {
	if gone {
		delete(all, name)
		api.remove(path + name)
		return
	}
	all[name] = word
	put()
}

func randomPod(r *rand.Rand, name string) *corev1.Pod {
	p := aPod(name, []string{"10.0.0.1", "10.0.0.2", "2001:db8::1", "10.0.0"}[r.IntN(4)])
	p.Labels = map[string]string{"v": fmt.Sprint(r.IntN(3))}
	p.Status.Phase = []corev1.PodPhase{corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodFailed, corev1.PodSucceeded}[r.IntN(5)]
	p.Spec.HostNetwork = r.IntN(6) == 0
	madeAt(r.IntN(3))(p)
	if r.IntN(2) == 0 {
		ending(p)
	}
	if name > "p1" { // a pod never goes to another node
		p.Spec.NodeName = "node-b"
	}
	if name > "p2" {
		p.Namespace = "n" + name[1:]
	}
	return p
}

// TestTwin: for random changes of the objects, the connection and the history of the API
// server, the state becomes the twin's.
func TestTwin(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 3))
			api := newAPIServer(t)
			api.noStream = seed%2 == 1
			w := &twin{map[string]*corev1.Pod{}, map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{},
				map[string]*discoveryv1.EndpointSlice{}, map[string]string{}, map[string]string{}, 1 + int(seed/2)*MaxRemoteNamespaces}
			client, dyn := api.clients()
			run := runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, Services: []policy.ServiceRef{kubeDNS}, Log: slog.New(slog.DiscardHandler)},
				func(s *Source) { s.remote.most = w.most })
			for range 30 {
				for range 1 + r.IntN(1+r.IntN(40)) {
					w.step(r, api)
					switch r.IntN(60) {
					case 0:
						api.setAway(true)
					case 1:
						api.setAway(false)
					case 2:
						api.forget()
					}
				}
				api.setAway(false)
				run.until(w.text(), twinText)
			}
			run.untilHealth("well", well)
		})
	}
}
