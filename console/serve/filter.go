package serve

import (
	"bytes"
	"encoding/json"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/nnp"
)

// filter reads the filter of a request.
func (r *request) filter() (console.AuditFilter, error) {
	namespace, pod, err := r.scope()
	if err != nil {
		return console.AuditFilter{}, err
	}
	f, err := console.ReadFilter(r.URL.Query())
	f.Namespace, f.Pod = namespace, pod
	return f, err
}

// choose appends the selected lines that the caller may see, without what he may not see of them. Lines
// of nodes are for callers who may get the kind that selects nodes.
// An unreadable line is left out.
func choose(f *console.AuditFilter, out, lines []byte, sees func(namespace string) bool, seesCluster func(id string) bool) []byte {
	ours := []byte(nil)
	if f.Namespace != "" {
		ours = []byte(`"namespace":"` + f.Namespace + `"`)
	}
	for line := range bytes.Lines(lines) {
		// Most of a busy node's log is others', and not worth being parsed.
		if !bytes.Contains(line, ours) {
			continue
		}
		var l audit.Line
		if json.Unmarshal(line, &l) != nil || !f.Wants(&l) {
			continue
		}
		if l.Host != nil && !seesCluster(nnp.ID("")) || l.Host == nil && !seesPod(policy.PodRef{Namespace: l.Pod.Namespace, Name: l.Pod.Name}, sees) {
			continue
		}
		out = append(out, redact(line, &l, sees, seesCluster)...)
	}
	return out
}
