package cyclonus

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// show writes policies as manifests.
func show(nps []*networkingv1.NetworkPolicy) string {
	var b strings.Builder
	for _, np := range nps {
		np = np.DeepCopy()
		np.APIVersion, np.Kind = "networking.k8s.io/v1", "NetworkPolicy"
		text, err := yaml.Marshal(np)
		if err != nil {
			return err.Error()
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.String()
}
