package serve

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/policy"
)

// filter reads the filter of a request.
func (r *request) filter() (f console.AuditFilter, err error) {
	q := r.URL.Query()
	if f.Namespace, f.Pod, err = r.scope(); err != nil {
		return f, err
	}
	f.Verdicts, f.Kinds = wordsOf(q["verdict"]), wordsOf(q["kind"])
	if text := q.Get("since"); text != "" {
		if f.Since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return f, console.Refuse(http.StatusBadRequest, "since=%q is no time; write one as in 2006-01-02T15:04:05Z", text)
		}
	}
	return f, f.Check()
}

// wordsOf splits lists at commas, each word once: every line is compared with them.
func wordsOf(lists []string) (words []string) {
	for _, l := range lists {
		for w := range strings.SplitSeq(l, ",") {
			if w != "" && !slices.Contains(words, w) {
				words = append(words, w)
			}
		}
	}
	return words
}

// head is what decides whether a line is shown.
type head struct {
	Kind    string    `json:"kind"`
	Time    time.Time `json:"time"`
	Last    time.Time `json:"last"` // of the counted connections
	Verdict string    `json:"verdict"`
	Pod     struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"pod"`
	Host  json.RawMessage `json:"host"` // in place of the pod
	Names []struct {
		Pod string `json:"pod"`
	} `json:"names"`
}

// wants tells whether a line is asked for.
func wants(f *console.AuditFilter, h *head) bool {
	return (f.Namespace == "" || h.Pod.Namespace == f.Namespace) && (f.Pod == "" || h.Pod.Name == f.Pod) &&
		(len(f.Verdicts) == 0 || slices.Contains(f.Verdicts, h.Verdict)) &&
		(len(f.Kinds) == 0 || slices.Contains(f.Kinds, h.Kind)) && (!h.Time.Before(f.Since) || !h.Last.Before(f.Since))
}

// choose appends the selected lines that the caller may see, without the names that he may not. Lines
// of nodes are for callers who may get the cluster kind, which alone selects nodes.
// An unreadable line is left out.
func choose(f *console.AuditFilter, out, lines []byte, sees func(namespace string) bool, seesCluster func(standard bool) bool) []byte {
	ours := []byte(nil)
	if f.Namespace != "" {
		ours = []byte(`"namespace":"` + f.Namespace + `"`)
	}
	for line := range bytes.Lines(lines) {
		// Most of a busy node's log is others', and not worth being parsed.
		if !bytes.Contains(line, ours) {
			continue
		}
		var h head
		if json.Unmarshal(line, &h) != nil || !wants(f, &h) {
			continue
		}
		if h.Host != nil && !seesCluster(false) || h.Host == nil && !seesPod(policy.PodRef{Namespace: h.Pod.Namespace, Name: h.Pod.Name}, sees) {
			continue
		}
		for _, n := range h.Names {
			if n.Pod != "" && !seesPod(refOf(n.Pod), sees) {
				line = withoutNames(line, sees)
				break
			}
		}
		if namesCluster(line, seesCluster) {
			line = withoutCluster(line, seesCluster)
		}
		out = append(out, line...)
	}
	return out
}
