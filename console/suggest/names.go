package suggest

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// workloadLabels are the labels whose value names a workload, the best first.
// Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/.
var workloadLabels = []string{"app.kubernetes.io/name", "app", "k8s-app", "name", "app.kubernetes.io/instance", "app.kubernetes.io/component"}

// baseNames returns a name for the policies of each workload, "cart-egress". Workloads
// with the same name get a hash of their selectors appended, so that a name stays when
// another workload is added.
func (l *Log) baseNames(keys []workloadKey) map[workloadKey]string {
	names, taken := map[workloadKey]string{}, map[string]int{}
	for _, key := range keys {
		names[key] = l.workloads[key].baseName()
		taken[key.namespace+"/"+names[key]]++
	}
	for key, name := range names {
		if taken[key.namespace+"/"+name] > 1 {
			sum := sha256.Sum256([]byte(key.selector + "\x00" + key.pod))
			names[key] = name + "-" + hex.EncodeToString(sum[:4])
		}
	}
	return names
}

func (w *workload) baseName() string {
	for _, label := range workloadLabels {
		if part := nameOf(w.labels[label]); part != "" {
			return part + "-egress"
		}
	}
	if w.pod != "" {
		return nameOf(w.pod) + "-egress"
	}
	if _, value, _ := strings.Cut(w.selector, "="); nameOf(value) != "" {
		return nameOf(value) + "-egress"
	}
	return "workload-egress"
}

// nameOf returns a label's value, or a pod's name, as a DNS label of no more than 50
// characters.
func nameOf(value string) string {
	const most = 50 // leaves room for a suffix
	value = strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c
		case 'A' <= c && c <= 'Z':
			return c + 'a' - 'A'
		}
		return '-'
	}, value)
	return strings.Trim(value[:min(len(value), most)], "-")
}

// numbered returns the name of the first, second and further policies.
func numbered(name string, number int) string {
	if number == 1 {
		return name
	}
	return name + "-" + strconv.Itoa(number)
}
