package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
)

// istioEntry is a ServiceEntry of Istio. Source: https://istio.io/latest/docs/reference/config/networking/service-entry/.
type istioEntry struct {
	head
	Spec struct {
		Hosts     []string `json:"hosts"`
		Addresses []string `json:"addresses"`
		Ports     []struct {
			Number     int32           `json:"number"`
			Protocol   string          `json:"protocol"`
			Name       string          `json:"name"`
			TargetPort json.RawMessage `json:"targetPort"`
		} `json:"ports"`
		Location         string          `json:"location"`
		Resolution       string          `json:"resolution"`
		Endpoints        json.RawMessage `json:"endpoints"`
		WorkloadSelector json.RawMessage `json:"workloadSelector"`
		ExportTo         []string        `json:"exportTo"`
		SubjectAltNames  []string        `json:"subjectAltNames"`
	} `json:"spec"`
}

// istio converts a ServiceEntry. Exported to its own namespace alone it is a policy of the
// namespace, which denies all other names, as the mesh does with REGISTRY_ONLY. Exported to others
// it is a Baseline policy: there a default-deny would cut off Services of the cluster.
func (o *object) istio() {
	var p istioEntry
	if !o.read(&p) {
		return
	}
	s := &p.Spec
	if s.Location == "MESH_INTERNAL" || s.WorkloadSelector != nil {
		o.note(Failed, "spec", "its hosts are in the cluster, whose addresses no name opens; write a NetworkPolicy")
		return
	}
	r := rule{action: v1alpha1.ActionAccept}
	r.matches = o.names(istioNames, r.action, s.Hosts, index("spec.hosts"))
	for i, port := range s.Ports {
		protocol := v1alpha1.ProtocolTCP
		switch strings.ToUpper(port.Protocol) {
		case "UDP":
			protocol = v1alpha1.ProtocolUDP
		case "HTTP", "HTTPS", "HTTP2", "GRPC", "GRPC-WEB", "HTTP_PROXY", "MONGO", "MYSQL", "REDIS", "TCP", "TLS", "":
		default:
			o.note(Failed, fmt.Sprintf("spec.ports[%d].protocol", i), "%q is not known", port.Protocol)
			return
		}
		r.ports = append(r.ports, portOf(protocol, port.Number, 0))
	}
	if len(r.matches) == 0 {
		o.note(Failed, "spec.hosts", "none is left")
		return
	}
	for _, field := range others(s, "hosts", "ports", "location", "resolution", "workloadSelector", "exportTo", "subjectAltNames") {
		o.note(Narrower, "spec."+field, "is left out: the addresses in answers for the hosts are open, and no others")
	}
	if len(s.SubjectAltNames) > 0 {
		o.note(Wider, "spec.subjectAltNames", "is left out: certificates are not read")
	}
	if slices.Equal(s.ExportTo, []string{"."}) {
		o.note(Narrower, "", "the pods of its namespace are denied everything else, also Services of the cluster; write a NetworkPolicy for these")
		o.write(o.namespaced(o.name, metav1.LabelSelector{}, []rule{r}))
		return
	}
	if !o.hasNamespace() {
		return
	}
	namespaces := &metav1.LabelSelector{}
	if len(s.ExportTo) > 0 && !slices.Contains(s.ExportTo, "*") {
		var names []string
		for _, n := range s.ExportTo {
			if n == "." {
				n = o.namespace
			}
			if n != "~" { // none
				names = append(names, n)
			}
		}
		if len(names) == 0 {
			o.note(Failed, "spec.exportTo", "it is exported to no namespace")
			return
		}
		namespaces.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: names}}
	}
	o.note(Wider, "", "other names stay allowed: a mesh with REGISTRY_ONLY denies them; add a rule with Deny behind it, or a policy in each namespace")
	o.write(o.ofCluster(o.namespace+"-"+o.name, place{v1alpha1.TierBaseline, cfqdnnp.MaxPriority - 1}, namespaces, &metav1.LabelSelector{}, []rule{r}))
}
