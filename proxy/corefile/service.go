package corefile

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/namegate/namegate/policy"
)

// service reads NAME.NAMESPACE, the form of an argument of forward that is not an
// address.
func service(s stanza, arg string) (policy.ServiceRef, error) {
	name, _, hasPort := strings.Cut(arg, ":")
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	switch {
	case strings.Count(arg, ":") > 1 || !slices.ContainsFunc(labels, func(l string) bool { return !isNumber(l) }):
		return policy.ServiceRef{}, s.errorf("%q is not an address, write ADDRESS, ADDRESS:PORT or a Service as NAME.NAMESPACE such as kube-dns.kube-system", arg)
	case len(labels) == 1:
		return policy.ServiceRef{}, s.errorf("%q is not an address, and a Service needs its namespace, write for example %s.kube-system", arg, strings.ToLower(name))
	case len(labels) > 2 && labels[2] != "svc":
		return policy.ServiceRef{}, s.errorf("%q is not an address, write ADDRESS, ADDRESS:PORT or a Service as NAME.NAMESPACE such as kube-dns.kube-system", arg)
	}
	ref := policy.ServiceRef{Name: labels[0], Namespace: labels[1]}
	plain := policy.ServiceRef{Name: strings.ToLower(ref.Name), Namespace: strings.ToLower(ref.Namespace)}
	if !isLabel(plain.Name) || !isLabel(plain.Namespace) {
		return ref, s.errorf("%q is neither an address nor a Service, write ADDRESS, ADDRESS:PORT or NAME.NAMESPACE such as kube-dns.kube-system", arg)
	}
	switch {
	case hasPort:
		return ref, s.errorf("%q has a port, which the Service itself defines, write %s instead", arg, plain)
	case ref.String() != arg || ref != plain:
		return ref, s.errorf("%q is not how a Service is named here, write %s instead", arg, plain)
	}
	return ref, nil
}

// isNumber tells whether a label of a mistyped address consists of digits.
func isNumber(label string) bool { return strings.Trim(label, "0123456789") == "" }

// isLabel tells whether Kubernetes takes the text for the name of a Service or a namespace.
func isLabel(text string) bool { return len(validation.IsDNS1123Label(text)) == 0 }

// Services returns the Services that the zones forward to, in the order of the
// zones, each once.
func (c *Config) Services() (out []policy.ServiceRef) {
	for _, z := range c.Zones {
		for _, ref := range z.Services {
			if !slices.Contains(out, ref) {
				out = append(out, ref)
			}
		}
	}
	return out
}
