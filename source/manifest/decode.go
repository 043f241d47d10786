package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/policy/peers"
)

// kindNetworkPolicy is the ordinary one. Other groups have kinds of that name too.
const kindNetworkPolicy = "NetworkPolicy"

// decoder turns documents into objects.
type decoder struct {
	nodeName string
	served   bool // objects are those of an API server, whose own kinds may have newer fields
	strict   runtime.Decoder
	lenient  runtime.Decoder
}

func newDecoder(nodeName string) (*decoder, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), networkingv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("registering the kinds of manifests: %w", err)
	}
	for _, standard := range cnp.Versions() { // read leniently: what is unknown breaks a rule
		scheme.AddKnownTypeWithName(standard.WithKind(cnp.Kind), &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(standard.WithKind(cnp.Kind+"List"), &unstructured.UnstructuredList{})
	}
	serializer := func(strict bool) runtime.Decoder {
		return kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme, kjson.SerializerOptions{Strict: strict})
	}
	return &decoder{nodeName: nodeName, strict: serializer(true), lenient: serializer(false)}, nil
}

// kinds are the kinds that are read, beside those of their lists.
var kinds = []schema.GroupVersionKind{
	v1alpha1.GroupVersion().WithKind(v1alpha1.Kind), v1alpha1.GroupVersion().WithKind(v1alpha1.ClusterKind), v1alpha1.GroupVersion().WithKind(v1alpha1.NodeKind), networkingv1.SchemeGroupVersion.WithKind(kindNetworkPolicy),
	cnp.Versions()[0].WithKind(cnp.Kind), cnp.Versions()[1].WithKind(cnp.Kind), corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("Namespace"), corev1.SchemeGroupVersion.WithKind("Node"),
}

// isList tells whether a kind is that of a list of objects that are read.
func isList(gvk schema.GroupVersionKind) bool {
	of, list := strings.CutSuffix(gvk.Kind, "List")
	if gvk.Group == corev1.GroupName {
		return gvk == corev1.SchemeGroupVersion.WithKind("List")
	}
	return list && slices.Contains(kinds, gvk.GroupVersion().WithKind(of))
}

// objects returns the object of a document, or the objects of a list. A broken one is in its place, with its
// error.
func (d *decoder) objects(path string, text []byte) []Object {
	o := Object{Path: path, JSON: text}
	var head struct {
		metav1.TypeMeta
		Metadata struct{ Name, Namespace string }
		Items    []json.RawMessage
	}
	err := json.Unmarshal(text, &head)
	o.TypeMeta, o.Name, o.Namespace = head.TypeMeta, head.Metadata.Name, head.Metadata.Namespace
	switch gvk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind); {
	case err != nil && (o.Kind == "" || o.APIVersion == ""):
		o.Err = fmt.Errorf("not an object with apiVersion and kind: %w", err)
	case o.Kind == "" || o.APIVersion == "":
		o.Err = errors.New("write apiVersion and kind")
	case isList(gvk):
		return d.list(o, head.Items)
	case slices.Contains(kinds, gvk):
		read := o
		if o.Err = d.read(&read); o.Err == nil {
			o = read
		}
	default:
		o.key, o.ignored, o.Err = o.Kind, fmt.Sprintf("kind %s of %s is not read from files", o.Kind, o.APIVersion), checkVersion(gvk)
	}
	return []Object{o}
}

// checkVersion refuses another version of a kind that is read.
func checkVersion(gvk schema.GroupVersionKind) error {
	ours, networking, standard := v1alpha1.GroupVersion(), networkingv1.SchemeGroupVersion, cnp.Resource().GroupVersion()
	want := ours
	switch {
	case gvk.Kind == kindNetworkPolicy && (gvk.Group == networking.Group || gvk.Group == "extensions"):
		want = networking
	case gvk.Kind == cnp.Kind && gvk.Group == standard.Group:
		want = standard
	case gvk.Kind == v1alpha1.Kind, gvk.Kind == v1alpha1.ClusterKind, gvk.Kind == v1alpha1.NodeKind:
	case gvk.Group == ours.Group:
		return fmt.Errorf("%s has no kind %s; write %s, %s or %s", gvk.GroupVersion(), gvk.Kind, v1alpha1.Kind, v1alpha1.ClusterKind, v1alpha1.NodeKind)
	default:
		return nil
	}
	return fmt.Errorf("apiVersion %s is unknown for %s; write %s", gvk.GroupVersion(), gvk.Kind, want)
}

// list returns a list's objects, and the list itself if its own fields are broken.
func (d *decoder) list(list Object, items []json.RawMessage) []Object {
	var objects []Object
	for i, item := range items {
		objects = append(objects, d.objects(strings.TrimPrefix(fmt.Sprintf("%s.items[%d]", list.Path, i), "."), item)...)
	}
	if _, _, list.Err = d.strict.Decode(list.JSON, nil, nil); list.Err != nil {
		objects = append(objects, list)
	}
	return objects
}

// read reads an object of one of the kinds.
func (d *decoder) read(o *Object) error {
	decode := d.strict.Decode
	if d.served && o.GroupVersionKind().Group != v1alpha1.Group {
		decode = d.lenient.Decode
	}
	decoded, _, err := decode(o.JSON, nil, nil)
	if err != nil {
		return err
	}
	switch v := decoded.(type) {
	case *v1alpha1.FQDNNetworkPolicy:
		err = errors.Join(checkNames(&v.ObjectMeta), checkSelector(o.JSON))
		o.key, o.Policy = "policy "+v.Namespace+"/"+v.Name, v
	case *v1alpha1.ClusterFQDNNetworkPolicy:
		v.Namespace = "" // of none, whatever is written
		err = checkClusterName(&v.ObjectMeta)
		o.key, o.ClusterPolicy = cfqdnnp.Object(v.Name), v
	case *v1alpha1.NodeNetworkPolicy:
		v.Namespace = ""
		err = checkClusterName(&v.ObjectMeta)
		o.key, o.NodePolicy = nnp.Object(v.Name), v
	case *unstructured.Unstructured:
		m := metav1.ObjectMeta{Name: v.GetName()}
		v.SetNamespace("")
		err = checkClusterName(&m)
		o.key, o.ClusterNetworkPolicy = cnp.Object(v.GetName()), v
	case *networkingv1.NetworkPolicy:
		// One without a selector selects every pod, as an API server reads it.
		err = checkNames(&v.ObjectMeta)
		o.key, o.NetworkPolicy = "networkpolicy "+v.Namespace+"/"+v.Name, v
	case *corev1.Pod:
		if err = checkNames(&v.ObjectMeta); err == nil {
			o.Pod, err = d.pod(v)
		}
		o.key = "pod " + v.Namespace + "/" + v.Name
	case *corev1.Namespace:
		err = checkClusterName(&v.ObjectMeta)
		o.key, o.Labels = "namespace "+v.Name, v.Labels
	case *corev1.Node:
		err = checkClusterName(&v.ObjectMeta)
		o.key, o.Labels, o.node = "node "+v.Name, v.Labels, peers.Node(v.Name, v.Labels, policy.NodeAddrs(v, func(int, string) {}))
	}
	return err
}

// checkSelector refuses a policy without a selector: in Go that is the same as {},
// which selects every pod.
func checkSelector(text []byte) error {
	var p struct {
		Spec struct {
			PodSelector *json.RawMessage `json:"podSelector"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	if p.Spec.PodSelector == nil {
		return errors.New("spec.podSelector is missing; write one, or {} for every pod of the namespace")
	}
	return nil
}

// checkClusterName refuses the name of an object without a namespace that no API server would
// take.
func checkClusterName(m *metav1.ObjectMeta) error {
	named := *m
	named.Namespace = metav1.NamespaceDefault
	return checkNames(&named)
}

// checkNames fills in the namespace as kubectl does, and refuses names that no
// API server would take.
func checkNames(m *metav1.ObjectMeta) error {
	if m.Namespace == "" {
		m.Namespace = metav1.NamespaceDefault
	}
	if m.Name == "" {
		return errors.New("metadata.name is missing; write one")
	}
	if wrong := validation.IsDNS1123Subdomain(m.Name); len(wrong) > 0 {
		return fmt.Errorf("metadata.name %q: %s", m.Name, strings.Join(wrong, "; "))
	}
	if wrong := validation.IsDNS1123Label(m.Namespace); len(wrong) > 0 {
		return fmt.Errorf("metadata.namespace %q: %s", m.Namespace, strings.Join(wrong, "; "))
	}
	return nil
}

// pod converts a pod for the compiler. A pod without a node is a local one.
func (d *decoder) pod(p *corev1.Pod) (*policy.Pod, error) {
	var wrong error
	out := policy.PodOf(p, func(i int, _ string, err error) {
		wrong = cmp.Or(wrong, fmt.Errorf("status.podIPs[%d]: %w", i, err))
	})
	for i, a := range out.IPs {
		if err := policy.CheckPodAddr(a); err != nil {
			wrong = cmp.Or(wrong, fmt.Errorf("status.podIPs[%d]: %w", i, err))
		}
	}
	if d.nodeName != "" && p.Spec.NodeName != d.nodeName {
		out.NodeName = p.Spec.NodeName
	}
	return &out, wrong
}
