package scenarios

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

const metricsAt = "127.0.0.1:9911"

// page gets a path that the agent serves at metricsAt.
func (s *stage) page(path string) (status int, body string, err error) {
	c, err := s.Node.Dial("tcp", metricsAt, lab.Limit)
	if err != nil {
		return 0, "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(lab.Limit))
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.0\r\n\r\n", path); err != nil {
		return 0, "", err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return r.StatusCode, string(text), err
}

// samples are all that the agent tells now.
func (s *stage) samples() map[string]string {
	s.t.Helper()
	status, text, err := s.page("/metrics")
	if err != nil || status != http.StatusOK {
		s.t.Fatalf("%d, %v\n%s", status, err, text)
	}
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if at := strings.LastIndex(line, " "); at > 0 && !strings.HasPrefix(line, "#") {
			out[line[:at]] = strings.TrimSpace(line[at+1:])
		}
	}
	return out
}

// TestMetricsMove: what happens on a node moves the metrics of it, and nothing else
// that is of other things.
func TestMetricsMove(t *testing.T) {
	t.Parallel()
	s := edgesStage(t, routed, corefile, "--metrics-addr", metricsAt, "--pprof")
	before := s.samples()
	for sample, want := range map[string]string{
		"namegate_ready": "1", "namegate_in_sync": "1", "namegate_intercepting": "1", "namegate_selected_pods": "1", "namegate_broken_files": "0",
		`namegate_dns_upstreams{state="up",zone="."}`: "2", `namegate_dns_upstreams{state="down",zone="."}`: "0",
		`namegate_dns_verdicts_total{type="A",verdict="allowed"}`: "1", "namegate_apply_failures_total": "0",
	} {
		diff.Equal(t, want, before[sample], sample, "at first")
	}
	for _, sample := range []string{"namegate_compile_seconds_count", "namegate_apply_seconds_count", `namegate_dns_latency_seconds_count{stage="grant"}`,
		`namegate_dns_latency_seconds_sum{stage="total"}`, "namegate_snapshot", "namegate_granted_addresses"} {
		if before[sample] == "" || before[sample] == "0" {
			t.Errorf("%s is %q at first", sample, before[sample])
		}
	}
	// Two grants: the one of short.example.org may end meanwhile.
	s.resolve("a", "b1.wild.example.org", dns.TypeA)
	s.resolve("a", "b2.wild.example.org", dns.TypeA)
	s.resolve("a", "other.example.org", dns.TypeA)
	s.resolve("a", "www.example.org", dns.TypeAAAA)
	s.expect("a", "tcp", "198.51.100.2:80", lab.Refused)
	after := s.samples()
	for _, sample := range []string{
		`namegate_dns_verdicts_total{type="A",verdict="allowed"}`, `namegate_dns_verdicts_total{type="AAAA",verdict="allowed"}`,
		`namegate_dns_verdicts_total{type="A",verdict="refused"}`, `namegate_dns_latency_seconds_count{stage="upstream"}`,
		`namegate_dns_latency_seconds_count{stage="decision"}`, `namegate_dns_latency_seconds_count{stage="grant"}`, `namegate_dns_queries_total{protocol="udp"}`,
		`namegate_dns_grants_total{outcome="acknowledged"}`, `namegate_dns_addresses_total{outcome="granted"}`, "namegate_granted_addresses",
		"namegate_dns_upstream_queries_total", `namegate_dns_cache_questions_total{outcome="miss"}`,
	} {
		if before[sample] == after[sample] {
			t.Errorf("%s is still %s", sample, after[sample])
		}
	}
	for _, sample := range []string{`namegate_dns_verdicts_total{type="A",verdict="unmatched"}`, `namegate_dns_verdicts_total{type="A",verdict="failed"}`,
		"namegate_dns_faults_total", "namegate_repairs_total", "namegate_apply_failures_total", "namegate_audit_dropped_lines_total"} {
		if before[sample] == "" || before[sample] != after[sample] {
			t.Errorf("%s went from %q to %q, and nothing of it happened", sample, before[sample], after[sample])
		}
	}
	s.until("the denied connection is counted, by why it was", func(int) bool {
		now := s.samples()
		return now["namegate_denied_packets_total"] != before["namegate_denied_packets_total"] && now[`namegate_flows_total{direction="egress",reason="address",tier="Namespace",verdict="denied"}`] == "1"
	})
	s.until("written lines are counted", func(int) bool {
		return s.samples()["namegate_audit_written_lines_total"] != before["namegate_audit_written_lines_total"]
	})
	fatal.If(t, s.agent.Write(map[string]string{"broken.yaml": "kind: ["}))
	s.until("a broken file is counted", func(int) bool { return s.samples()["namegate_broken_files"] == "1" })
	run(t, s.Node, "nft", "delete", "table", "inet", "namegate")
	s.until("a repair is counted", func(int) bool { return s.samples()["namegate_repairs_total"] != after["namegate_repairs_total"] })
	if status, _, err := s.page("/debug/pprof/heap"); status != http.StatusOK || err != nil {
		t.Errorf("with --pprof: %d, %v", status, err)
	}
}
