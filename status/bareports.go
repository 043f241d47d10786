package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/status/event"
)

// barePortEvents emits an event of each policy that has ports without a protocol. It is for
// one goroutine.
type barePortEvents struct {
	recorder events.EventRecorder
	tcp      bool // such a port is one of TCP alone
	dedup    event.Dedup
}

// emit emits the events that are due.
func (e *barePortEvents) emit(now time.Time, in input) {
	e.dedup.Begin()
	for _, id := range slices.Sorted(maps.Keys(in.bare)) {
		p := in.policies[id]
		if p == nil || p.DeletionTimestamp != nil {
			continue
		}
		note := barePortNote(in.bare[id], e.tcp)
		if e.dedup.Due(now, event.Key{Kind: v1alpha1.Kind, Object: id + "/" + string(p.UID) + "/" + note, Reason: fqdnnp.ReasonPortWithoutProtocol}) {
			e.recorder.Eventf(event.Policy(p), nil, corev1.EventTypeWarning, fqdnnp.ReasonPortWithoutProtocol, actionAccept, "%s", note)
		}
	}
	e.dedup.End(now)
}

// barePortNote names the ports, as many as an event has room for.
func barePortNote(ports []fqdnnp.BarePort, tcp bool) string {
	meaning := "ports without a protocol are open for TCP, UDP and SCTP; earlier releases opened them for TCP alone. " +
		"Write protocol: TCP, or protocol: ALL if that is meant: "
	if tcp {
		meaning = "ports without a protocol are open for TCP alone, by the directive \"ports tcp\" of the Corefile; the next release opens them for TCP, UDP and SCTP. " +
			"Write protocol: TCP, or protocol: ALL if that is meant: "
	}
	var named strings.Builder
	named.WriteString(meaning)
	for i, p := range ports {
		text, more := p.String(), fmt.Sprintf(", and %d more; namegate check --upgrade names all", len(ports)-i)
		if i > 0 {
			text = ", " + text
		}
		if named.Len()+len(text)+len(more) > event.MaxNote {
			return named.String() + more
		}
		named.WriteString(text)
	}
	return named.String()
}
