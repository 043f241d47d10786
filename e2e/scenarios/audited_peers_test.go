package scenarios

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/e2e/lab"
)

// TestAuditedBesideNetworkPolicy: an audited pod's connection that its NetworkPolicies
// allow is no would-deny, by its actual destination; and explain names the rule.
func TestAuditedBesideNetworkPolicy(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, kind nodeKind) {
		s := newPeerStage(t, kind)
		client := s.server("client", 10, false, map[string]string{"app": "client"}, 8080)
		db := s.server("db", 11, true, map[string]string{"app": "db"}, 5432, 9187)
		other := s.server("other", 12, false, map[string]string{"app": "other"}, 5432)
		db4, db6 := s.service(20, 80, db, 5432)
		metrics4, _ := s.service(21, 80, db, 9187)
		elsewhere4, _ := s.service(22, 5432, other, 5432)
		own4, _ := s.service(23, 80, client, 8080)
		s.start(s.manifests(map[string]string{
			"p.yaml":  policy("watch", "enforcement: Audit\n"+selectsClient),
			"np.yaml": egress("db-out", "\n- to: [{podSelector: {matchLabels: {app: db}}}]\n  ports: [{port: 5432}, {port: 5432, protocol: UDP}]"),
		}))
		at := func(a netip.Addr, port int) string { return netip.AddrPortFrom(a, uint16(port)).String() }
		for _, to := range []string{at(db4, 80), at(db6, 80), at(db.Addr4, 5432), at(db.Addr6, 5432), at(own4, 80)} {
			s.expect("client", "tcp", to, lab.Answered)
		}
		s.expect("client", "udp", at(db4, 80), lab.Answered)
		for _, to := range []string{at(metrics4, 80), at(elsewhere4, 5432), at(db.Addr4, 9187), at(other.Addr6, 5432)} {
			s.expect("client", "tcp", to, lab.Answered)
		}
		want := []string{
			fmt.Sprintf("would-deny client tcp %s 80 address", metrics4), fmt.Sprintf("would-deny client tcp %s 5432 address", elsewhere4),
			fmt.Sprintf("would-deny client tcp %s 9187 address", db.Addr4), fmt.Sprintf("would-deny client tcp %s 5432 address", other.Addr6),
		}
		for _, w := range want {
			s.awaitFlow(w)
		}
		s.onlyFlows(want...)

		ask := func(to string) (e explain.Explanation) {
			t.Helper()
			out, errs, _ := s.command("explain", "shop/client", to, "-o", "json")
			if err := json.Unmarshal([]byte(out), &e); err != nil {
				t.Fatalf("%v in %s%s", err, out, errs)
			}
			return e
		}
		if e := ask(at(db.Addr4, 5432)); e.Verdict != explain.Allowed || !strings.Contains(e.Reason, "NetworkPolicy shop/db-out (spec.egress[0])") || len(e.Peers) != 1 || e.Peers[0].Pod != "shop/db" {
			t.Errorf("the peer is explained as %+v", e)
		}
		if e := ask(at(other.Addr4, 5432)); e.Verdict != explain.WouldDeny || e.Advice == nil || !strings.Contains(e.Advice.NetworkPolicy, "app: other") {
			t.Errorf("another pod is explained as %+v", e)
		}
	})
}
