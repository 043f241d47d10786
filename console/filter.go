package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/audit"
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

// ReadFilter reads a filter as Query writes it, but for the namespace and the pod.
func ReadFilter(q url.Values) (f AuditFilter, err error) {
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

// Wants tells whether a line is asked for.
func (f *AuditFilter) Wants(l *audit.Line) bool {
	return (f.Namespace == "" || l.Pod.Namespace == f.Namespace) && (f.Pod == "" || l.Pod.Name == f.Pod) &&
		(len(f.Verdicts) == 0 || slices.Contains(f.Verdicts, l.Verdict)) &&
		(len(f.Kinds) == 0 || slices.Contains(f.Kinds, l.Kind)) && (!l.Time.Before(f.Since) || !l.Last.Before(f.Since))
}

// Query is the filter as the agent reads it.
func (f *AuditFilter) Query(follow bool) url.Values {
	q := url.Values{}
	for key, value := range map[string]string{
		"namespace": f.Namespace, "pod": f.Pod, "verdict": strings.Join(f.Verdicts, ","), "kind": strings.Join(f.Kinds, ","),
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	if follow {
		q.Set("follow", "1")
	}
	return q
}
