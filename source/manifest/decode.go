package manifest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/namegate/namegate/policy/peers"
)

// object is one object of a file: exactly one of the pointers is set.
type object struct {
	at            string // its position in the file
	key           string // "policy shop/allow-out": its kind and its name
	policy        *v1alpha1.FQDNNetworkPolicy
	clusterPolicy *v1alpha1.ClusterFQDNNetworkPolicy
	standard      *unstructured.Unstructured // a ClusterNetworkPolicy
	networkPolicy *networkingv1.NetworkPolicy
	pod           *policy.Pod
	namespace     *corev1.Namespace
	node          *policy.Pod // as a peer
	ignored       string      // why it is left out
}

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
	standard := cnp.Resource().GroupVersion() // read leniently: what is unknown breaks a rule
	scheme.AddKnownTypeWithName(standard.WithKind(cnp.Kind), &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(standard.WithKind(cnp.Kind+"List"), &unstructured.UnstructuredList{})
	serializer := func(strict bool) runtime.Decoder {
		return kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme, kjson.SerializerOptions{Strict: strict})
	}
	return &decoder{nodeName: nodeName, strict: serializer(true), lenient: serializer(false)}, nil
}

// file returns the objects of a file, or an error that says which of its
// documents is broken and how. It stops between two documents when ctx ends.
func (d *decoder) file(ctx context.Context, name string, text []byte) ([]object, error) {
	docs, err := split(ctx, name, text)
	if err != nil {
		return nil, err
	}
	var objects []object
	for _, doc := range docs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		found, err := d.document(doc.String(), doc.json)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

func (d *decoder) document(at string, text []byte) ([]object, error) {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(text, &meta); err != nil {
		return nil, fmt.Errorf("%s: not an object with apiVersion and kind: %w", at, err)
	}
	if meta.Kind == "" || meta.APIVersion == "" {
		return nil, fmt.Errorf("%s: write apiVersion and kind", at)
	}
	ours, networking, standard := v1alpha1.GroupVersion(), networkingv1.SchemeGroupVersion, cnp.Resource().GroupVersion()
	gvk := schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind)
	switch gvk {
	case ours.WithKind(v1alpha1.Kind), ours.WithKind(v1alpha1.ClusterKind), networking.WithKind(kindNetworkPolicy), corev1.SchemeGroupVersion.WithKind("Pod"),
		corev1.SchemeGroupVersion.WithKind("Namespace"), corev1.SchemeGroupVersion.WithKind("Node"), standard.WithKind(cnp.Kind):
		return d.one(at, text, gvk.Group)
	case ours.WithKind(v1alpha1.Kind + "List"), ours.WithKind(v1alpha1.ClusterKind + "List"), networking.WithKind(kindNetworkPolicy + "List"), standard.WithKind(cnp.Kind + "List"),
		corev1.SchemeGroupVersion.WithKind("List"):
		return d.list(at, text)
	}
	switch {
	case gvk.Kind == kindNetworkPolicy && (gvk.Group == networking.Group || gvk.Group == "extensions"):
		return nil, fmt.Errorf("%s: apiVersion %s is unknown for %s; write %s", at, meta.APIVersion, gvk.Kind, networking)
	case gvk.Kind == cnp.Kind && gvk.Group == standard.Group:
		return nil, fmt.Errorf("%s: apiVersion %s is unknown for %s; write %s", at, meta.APIVersion, gvk.Kind, standard)
	case gvk.Kind == v1alpha1.Kind, gvk.Kind == v1alpha1.ClusterKind:
		return nil, fmt.Errorf("%s: apiVersion %s is unknown for %s; write %s", at, meta.APIVersion, gvk.Kind, ours)
	case gvk.Group == ours.Group:
		return nil, fmt.Errorf("%s: %s has no kind %s; write %s or %s", at, meta.APIVersion, gvk.Kind, v1alpha1.Kind, v1alpha1.ClusterKind)
	}
	return []object{{at: at, key: meta.Kind, ignored: fmt.Sprintf("kind %s of %s is not read from files", meta.Kind, meta.APIVersion)}}, nil
}

func (d *decoder) list(at string, text []byte) ([]object, error) {
	// The items are read one by one below; here the list's own fields count.
	if _, _, err := d.strict.Decode(text, nil, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	var objects []object
	for i, item := range list.Items {
		found, err := d.document(fmt.Sprintf("%s items[%d]", at, i), item)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

func (d *decoder) one(at string, text []byte, group string) ([]object, error) {
	decode := d.strict.Decode
	if d.served && group != v1alpha1.Group {
		decode = d.lenient.Decode
	}
	decoded, _, err := decode(text, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	o := object{at: at}
	switch v := decoded.(type) {
	case *v1alpha1.FQDNNetworkPolicy:
		err = errors.Join(checkNames(&v.ObjectMeta), checkSelector(text))
		o.key, o.policy = "policy "+v.Namespace+"/"+v.Name, v
	case *v1alpha1.ClusterFQDNNetworkPolicy:
		v.Namespace = "" // of none, whatever is written
		err = checkClusterName(&v.ObjectMeta)
		o.key, o.clusterPolicy = cfqdnnp.Object(v.Name), v
	case *unstructured.Unstructured:
		m := metav1.ObjectMeta{Name: v.GetName()}
		v.SetNamespace("")
		err = checkClusterName(&m)
		o.key, o.standard = cnp.Object(v.GetName()), v
	case *networkingv1.NetworkPolicy:
		// One without a selector selects every pod, as an API server reads it.
		err = checkNames(&v.ObjectMeta)
		o.key, o.networkPolicy = "networkpolicy "+v.Namespace+"/"+v.Name, v
	case *corev1.Pod:
		err = checkNames(&v.ObjectMeta)
		if err == nil {
			o.pod, err = d.pod(v)
		}
		o.key = "pod " + v.Namespace + "/" + v.Name
	case *corev1.Namespace:
		err = checkClusterName(&v.ObjectMeta)
		o.key, o.namespace = "namespace "+v.Name, v
	case *corev1.Node:
		err = checkClusterName(&v.ObjectMeta)
		o.key, o.node = "node "+v.Name, peers.Node(v.Name, v.Labels, policy.NodeAddrs(v, func(int, string) {}))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return []object{o}, nil
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
