package agent

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/servername"
	"github.com/namegate/namegate/status"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func newTestRelaying(port uint16) *relaying {
	return &relaying{
		relay: servername.New(servername.Options{Limits: corefile.DefaultRelayLimits, Protect: protector(slog.New(slog.DiscardHandler))}), port: port, log: slog.New(slog.DiscardHandler),
		lost: make(chan struct{}, 1), open: map[netip.AddrPort]*net.TCPListener{},
	}
}

// requiring is a snapshot with a pod whose policies have a rule, and a pod whose have none.
func requiring(r policy.Rule) *policy.Snapshot {
	of := func(name string, rules ...*policy.Rule) *policy.View {
		return &policy.View{Pod: policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: name}}, Policies: []string{"shop/" + name}, Rules: policy.Rules{NamespaceChecked: rules}}
	}
	return policy.NewSnapshot(policy.Snapshot{Views: []*policy.View{of("a", &r), of("b")}}, nil, nil)
}

// TestRelayIsServedWhileNeeded: the network has the relay's port as long as rules that are enforced require the server name.
func TestRelayIsServedWhileNeeded(t *testing.T) {
	r := newTestRelaying(9955)
	for _, step := range []struct {
		rule    policy.Rule
		changed bool
		port    uint16
	}{
		{policy.Rule{}, false, 0}, {policy.Rule{ServerName: true}, true, 9955}, {policy.Rule{ServerName: true}, false, 9955},
		{policy.Rule{ServerName: true, Audit: true}, true, 0},
	} {
		diff.Equal(t, step.changed, r.follow(requiring(step.rule)), step.rule)
		var n intercept.Network
		r.addTo(&n)
		diff.Equal(t, step.port, n.RelayPort, step.rule)
	}
}

// TestRelayThatCannotListen: the pods that need it have a finding until it can, and the others none.
func TestRelayThatCannotListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	at := taken.Addr().(*net.TCPAddr).AddrPort()
	r, snap := newTestRelaying(at.Port()), requiring(policy.Rule{ServerName: true})
	diff.Equal(t, 0, len(r.findings(snap)), "findings before")
	r.listen([]netip.AddrPort{at})
	found := r.findings(snap)
	if len(found) != 1 || found[0].Reason != status.NotRelayed || found[0].Pod.Name != "a" || found[0].Policy != "shop/a" || !strings.Contains(found[0].Message, "address already in use; free the port") {
		t.Errorf("findings %+v", found)
	}
	diff.Equal(t, 0, len(r.findings(nil)), "findings before the first snapshot")
	taken.Close()
	r.listen([]netip.AddrPort{at})
	diff.Equal(t, 0, len(r.findings(snap)), "findings afterwards")
	if c, err := net.Dial("tcp", at.String()); err == nil {
		c.Close()
	} else if errors.Is(err, syscall.ECONNREFUSED) { // a reset is the relay's
		t.Error(err)
	}
	r.listen(nil)
	if _, err := net.Dial("tcp", at.String()); err == nil {
		t.Error("it listens where it is not led to any more")
	}
	r.close(time.Time{})
}

// TestFaultOfOneConnection: a fault is logged and ends what it happens in alone.
func TestFaultOfOneConnection(t *testing.T) {
	var log strings.Builder
	protect := protector(slog.New(slog.NewTextHandler(&log, nil)))
	if !protect("a connection", func() {}) || protect("a connection", func() { panic("broken") }) {
		t.Error("a fault is success, or the reverse")
	}
	diff.Has(t, "a connection ended in a fault of the agent", log.String())
	diff.Has(t, "broken", log.String())
}
