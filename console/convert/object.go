package convert

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/source/manifest"
)

// object is one object that is converted.
type object struct {
	r               *Result
	file            string
	line            int
	version, kind   string
	namespace, name string // no namespace where the manifest leaves it to kubectl
	cluster         bool   // its kind is of no namespace
	metadata        metav1.ObjectMeta
	json            []byte
}

// note adds a note about a field, "" for the whole object.
func (o *object) note(grade Grade, path, format string, args ...any) {
	o.r.Notes = append(o.r.Notes, Note{o.file, o.line, grade, o.named(o.kind, o.name, o.cluster), path, fmt.Sprintf(format, args...)})
}

// named returns the name of the object, or of a policy that it becomes.
func (o *object) named(kind, name string, cluster bool) string {
	if cluster || o.namespace == "" {
		return kind + " " + name
	}
	return kind + " " + o.namespace + "/" + name
}

// hasNamespace tells whether the namespace is known, which becomes a part of the policy.
func (o *object) hasNamespace() bool {
	if o.namespace == "" {
		o.note(Failed, "metadata.namespace", "is missing, and the policy selects by it; write it, or run namegate convert -n NAMESPACE")
	}
	return o.namespace != ""
}

// without notes a part that has no equal, by the action of its rule: without an Accept less is
// allowed; without a Deny or a Pass more may be.
func (o *object) without(action v1alpha1.Action, path, format string, args ...any) {
	grade := Wider
	if action == v1alpha1.ActionAccept {
		grade = Narrower
	}
	o.note(grade, path, format, args...)
}

// unnamed notes a part without names that is left out. DNS needs no rule.
func (o *object) unnamed(action v1alpha1.Action, dns bool, path, format string, args ...any) {
	if dns && action == v1alpha1.ActionAccept {
		o.note(Dropped, path, "DNS queries to the resolver of the pods need no rule")
		return
	}
	o.without(action, path, format, args...)
}

// head is what every object has. Its fields are embedded in the types of the sources.
type head struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   json.RawMessage `json:"metadata"`
	Status     json.RawMessage `json:"status"`
}

// read reads the object into the type of its source, which embeds head: a field that the type does
// not have is an error, because a part that nothing converts would be lost.
func (o *object) read(into any) bool {
	var h head
	err := strictly(o.json, into)
	if err == nil {
		if err = json.Unmarshal(o.json, &h); err == nil && h.Metadata != nil {
			err = strictly(h.Metadata, &o.metadata)
		}
	}
	if err != nil {
		o.note(Failed, "", "%v", err)
		return false
	}
	delete(o.metadata.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	if h.Status != nil {
		o.note(Dropped, "status", "the agents write their own")
	}
	return true
}

func strictly(text []byte, into any) error {
	unknown, err := kjson.UnmarshalStrict(text, into)
	if err != nil {
		return err
	}
	return errors.Join(unknown...)
}

// write adds a policy to the result, as several if it has more rules than one may have. The parts are in
// the order of their names, as cluster policies are evaluated.
func (o *object) write(made metav1.Object) {
	name, path, parts := made.GetName(), "spec.egress", 1
	var take func(i int)
	switch p := made.(type) {
	case *v1alpha1.FQDNNetworkPolicy:
		all := chunks(p.Spec.Egress, fqdnnp.MaxRules)
		parts, take = len(all), func(i int) { p.Spec.Egress = all[i] }
	case *v1alpha1.ClusterFQDNNetworkPolicy:
		all := chunks(p.Spec.Egress, cfqdnnp.MaxRules)
		parts, take = len(all), func(i int) { p.Spec.Egress = all[i] }
	case *v1alpha1.NodeNetworkPolicy:
		in, out := chunks(p.Spec.Ingress, cfqdnnp.MaxRules), chunks(p.Spec.Egress, cfqdnnp.MaxRules)
		path, parts, take = "spec", max(len(in), len(out)), func(i int) { p.Spec.Ingress, p.Spec.Egress = item(in, i), item(out, i) }
	}
	for i := range parts {
		if take(i); i > 0 {
			made.SetName(fmt.Sprintf("%s-part%02d", name, i+1))
			o.note(Changed, path, "has more rules than a policy can have; the next are in %s", made.GetName())
		}
		o.writePart(made)
	}
}

// writePart adds one policy, and notes what of it cannot work.
func (o *object) writePart(made metav1.Object) {
	asYAML, err := yaml.Marshal(made)
	if err != nil {
		o.note(Failed, "", "%v", err)
		return
	}
	read, err := manifest.Inspect("converted.yaml", asYAML)
	if err == nil {
		err = read[0].Objects[0].Err
	}
	if err != nil {
		o.note(Failed, "", "%v", err)
		return
	}
	var problems []policy.Problem
	p := &read[0].Objects[0]
	name := o.named(p.Kind, p.Name, p.Policy == nil)
	switch {
	case p.NodePolicy != nil:
		problems = nnp.Validate(p.NodePolicy)
	case p.ClusterPolicy != nil:
		problems = cfqdnnp.Validate(p.ClusterPolicy)
	default:
		problems = fqdnnp.Validate(p.Policy)
	}
	if o.r.names[name] {
		o.note(Failed, "metadata.name", "there is another policy that becomes %s; rename one of them", name)
		return
	}
	for _, problem := range problems {
		o.note(Failed, problem.Path, "%s", problem.Message)
	}
	if o.r.names == nil {
		o.r.names = map[string]bool{}
	}
	o.r.names[name] = true
	if o.r.Policies > 0 {
		o.r.YAML = append(o.r.YAML, "---\n"...)
	}
	o.r.YAML = append(o.r.YAML, bytes.TrimLeft(asYAML, "\n")...)
	o.r.Policies++
}

// names converts names of a rule at paths, each in the dialect. A name that cannot be read is
// left out, with a note.
func (o *object) names(d dialect, action v1alpha1.Action, texts []string, path func(i int) string) (matches []v1alpha1.Match) {
	for i, text := range texts {
		n, err := d.convert(text)
		switch {
		case err != nil:
			o.note(Failed, path(i), "%v", err)
		case n.grade == Narrower:
			o.without(action, path(i), "%s", n.message)
		case n.grade != "":
			o.note(n.grade, path(i), "%s", n.message)
		}
		domain, _ := fqdn.ParseName(cmp.Or(o.r.ClusterDomain, "cluster.local"))
		if d.outside && n.inside(domain) {
			grade := Wider
			if action == v1alpha1.ActionDeny {
				grade = Narrower
			}
			o.note(grade, path(i), "names of the cluster match %q: here the rule is for their Services too, there it is not; write the names that are meant", text)
		}
		matches = append(matches, n.matches...)
	}
	return matches
}

// nameOrPattern converts a match with Accept that has either a name or a pattern.
func (o *object) nameOrPattern(d dialect, name, pattern, path string) []v1alpha1.Match {
	switch {
	case (name == "") == (pattern == ""):
		o.note(Failed, path, "write exactly one name or pattern")
	case strings.Contains(name, "*"):
		o.note(Failed, path, "%q holds a wildcard, which only patterns have", name)
	default:
		return o.names(d, v1alpha1.ActionAccept, []string{name + pattern}, func(int) string { return path })
	}
	return nil
}

// index returns the path of an item of a list.
func index(list string) func(i int) string {
	return func(i int) string { return fmt.Sprintf("%s[%d]", list, i) }
}

// noIngress notes rules for ingress, which no policy here has.
func (o *object) noIngress(rules int, path string) {
	if rules > 0 {
		o.note(Wider, path, "rules for ingress are left out; keep them in a NetworkPolicy")
	}
}

// noNames notes an object in which no rule names a destination.
func (o *object) noNames() {
	o.note(Failed, "", "none of its rules for egress has a name, so nothing is written; keep it, or write a NetworkPolicy")
}

// source is how the objects of a kind are converted.
type source struct {
	versions string // of its group that have the same fields
	cluster  bool   // it is of no namespace
	convert  func(o *object)
}

// sources returns what is converted, by group and kind.
func sources() map[string]source {
	return map[string]source{
		"networking.gke.io FQDNNetworkPolicy":         {"v1alpha1 v1alpha2 v1alpha3", false, (*object).gke},
		"cilium.io CiliumNetworkPolicy":               {"v2", false, (*object).cilium},
		"cilium.io CiliumClusterwideNetworkPolicy":    {"v2", true, (*object).cilium},
		"projectcalico.org NetworkPolicy":             {"v3", false, (*object).calico},
		"projectcalico.org GlobalNetworkPolicy":       {"v3", true, (*object).calicoGlobal},
		"projectcalico.org " + calicoHosts:            {"v3", true, (*object).calicoHost},
		"crd.antrea.io NetworkPolicy":                 {"v1beta1 v1alpha1", false, (*object).antrea},
		"crd.antrea.io ClusterNetworkPolicy":          {"v1beta1 v1alpha1", true, (*object).antrea},
		"networking.k8s.aws ApplicationNetworkPolicy": {"v1alpha1", false, (*object).aws},
		"networking.k8s.aws ClusterNetworkPolicy":     {"v1alpha1", true, (*object).awsCluster},
		"k8s.ovn.org EgressFirewall":                  {"v1", false, (*object).ovn},
		"networking.istio.io ServiceEntry":            {"v1 v1beta1 v1alpha3", false, (*object).istio},
	}
}

// sourceOf returns the source of a kind, and whether it has the version.
func sourceOf(apiVersion, kind string) (source, bool) {
	group, version, _ := strings.Cut(apiVersion, "/")
	s := sources()[group+" "+kind]
	return s, slices.Contains(strings.Fields(s.versions), version)
}
