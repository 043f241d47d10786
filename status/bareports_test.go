package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/status/event"
	"github.com/namegate/namegate/testkit/statustest"
)

// TestBarePortsHaveEvents: each policy has one event for its ports without a protocol, which
// comes again while they last, and at once where they change.
func TestBarePortsHaveEvents(t *testing.T) {
	api, web, ending := statustest.Policy("shop", "api"), statustest.Policy("shop", "web"), statustest.Policy("shop", "ending")
	ending.DeletionTimestamp = &metav1.Time{Time: statustest.At(0)}
	in := input{policies: statustest.ByID(api, web, ending), bare: map[string][]fqdnnp.BarePort{
		"shop/web":    {{Path: "spec.egress[0].ports[1]", Ports: "443"}, {Path: "spec.egress[2].ports[0]", Ports: "8000-9000"}},
		"shop/api":    {{Path: "spec.egress[0].ports[0]", Ports: "80"}},
		"shop/ending": {{Path: "spec.egress[0].ports[0]", Ports: "80"}},
		"shop/gone":   {{Path: "spec.egress[0].ports[0]", Ports: "80"}},
	}}
	recorder := &listener{}
	events := &barePortEvents{recorder: recorder}
	take := func(after time.Duration) (heard []string) {
		events.emit(statustest.At(after), in)
		for _, text := range recorder.take() { // these are about no second object
			heard = append(heard, strings.TrimPrefix(text, "incomplete "))
		}
		return heard
	}
	const says = "ports without a protocol are open for TCP, UDP and SCTP; earlier releases opened them for TCP alone. Write protocol: TCP, or protocol: ALL if that is meant: "
	if got, want := take(0), []string{
		"PortWithoutProtocol FQDNNetworkPolicy/api: " + says + "spec.egress[0].ports[0] (80)",
		"PortWithoutProtocol FQDNNetworkPolicy/web: " + says + "spec.egress[0].ports[1] (443), spec.egress[2].ports[0] (8000-9000)",
	}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := take(49 * time.Minute); len(got) > 0 {
		t.Errorf("again: %q", got)
	}
	in.bare["shop/web"] = in.bare["shop/web"][:1]
	if got := take(49*time.Minute + time.Second); len(got) != 1 || !strings.HasSuffix(got[0], "spec.egress[0].ports[1] (443)") {
		t.Errorf("after a change: %q", got)
	}
	delete(in.bare, "shop/api")
	if got := take(2 * time.Hour); len(got) != 1 || !strings.Contains(got[0], "/web: ") {
		t.Errorf("after two hours: %q", got)
	}
}

// TestBarePortNote: a note has as many ports as an event has room for, and their number.
func TestBarePortNote(t *testing.T) {
	var ports []fqdnnp.BarePort
	for i := range 1000 {
		ports = append(ports, fqdnnp.BarePort{Path: fmt.Sprintf("spec.egress[%d].ports[0]", i), Ports: fmt.Sprint(1 + i)})
	}
	for _, tcp := range []bool{false, true} {
		note := barePortNote(ports, tcp)
		named := strings.Count(note, "spec.egress[")
		if len(note) > event.MaxNote || named < 10 || !strings.HasSuffix(note, fmt.Sprintf(", and %d more; namegate check --upgrade names all", 1000-named)) {
			t.Errorf("%d bytes, %d ports: %s", len(note), named, note)
		}
		if strings.Contains(note, "for TCP alone, by the directive") != tcp {
			t.Error(note)
		}
	}
}

// TestBarePortsOfTheCluster: the elected agent alone emits the events.
func TestBarePortsOfTheCluster(t *testing.T) {
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{statustest.Policy("shop", "web")}, nil, func(t *testing.T, w *world) {
		defer w.start("n1", false)()
		defer w.start("n2", false)()
		for _, r := range w.agents {
			r.SetBarePorts(map[string][]fqdnnp.BarePort{"shop/web": {{Path: "spec.egress[0].ports[0]", Ports: "443"}}})
		}
		w.tell()
		w.pass(2 * passAgain)
		if got := w.events(); !slices.Equal(got, []string{"FQDNNetworkPolicy/web Warning PortWithoutProtocol"}) {
			t.Errorf("%q", got)
		}
	})
}
