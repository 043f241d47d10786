package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
)

// AuditFilter is which lines of the audit log are asked for; its zero value is all.
type AuditFilter struct {
	Namespace, Pod string // the pod's name
	// Verdicts and Kinds are the selected ones; empty means all.
	Verdicts, Kinds []string
	Since           time.Time // lines of that moment and later
}

// Verdicts are the words of the audit log's verdicts, of both kinds.
func Verdicts() []string { return audit.Verdicts() }

// Kinds are the words of its kinds.
func Kinds() []string { return []string{audit.KindDNS, audit.KindFlow} }

// Check refuses words that the log does not have.
func (f *AuditFilter) Check() error {
	for _, list := range []struct {
		what         string
		words, known []string
	}{{"verdict", f.Verdicts, Verdicts()}, {"kind", f.Kinds, Kinds()}} {
		for _, w := range list.words {
			if !slices.Contains(list.known, w) {
				return Refuse(http.StatusBadRequest, "%s %q is not known; write %s", list.what, w, strings.Join(list.known, ", "))
			}
		}
	}
	return nil
}

// filter reads the filter of a request.
func (r *request) filter() (f AuditFilter, err error) {
	q := r.URL.Query()
	if f.Namespace, f.Pod, err = r.scope(); err != nil {
		return f, err
	}
	f.Verdicts, f.Kinds = wordsOf(q["verdict"]), wordsOf(q["kind"])
	if text := q.Get("since"); text != "" {
		if f.Since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return f, Refuse(http.StatusBadRequest, "since=%q is no time; write one as in 2006-01-02T15:04:05Z", text)
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
func (f *AuditFilter) wants(h *head) bool {
	return (f.Namespace == "" || h.Pod.Namespace == f.Namespace) && (f.Pod == "" || h.Pod.Name == f.Pod) &&
		(len(f.Verdicts) == 0 || slices.Contains(f.Verdicts, h.Verdict)) &&
		(len(f.Kinds) == 0 || slices.Contains(f.Kinds, h.Kind)) && (!h.Time.Before(f.Since) || !h.Last.Before(f.Since))
}

// choose appends the selected lines that the caller may see, without the names that he may not. Lines
// of nodes are for callers who may get the cluster kind, which alone selects nodes.
// An unreadable line is left out.
func (f *AuditFilter) choose(out, lines []byte, sees func(namespace string) bool, seesCluster func(standard bool) bool) []byte {
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
		if json.Unmarshal(line, &h) != nil || !f.wants(&h) {
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
