package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
)

// testWhy: the question why a pod cannot reach its bank is answered by one command: the
// denied connection is followed as it happens, explain names the missing rule, and its
// advice makes it work.
func testWhy(t *testing.T) {
	s := begin(t, "why")
	for _, n := range nodes {
		p := "pay-" + n
		s.run(pod(p, n, map[string]string{"app": p}), policy("pay-"+n, `{podSelector: {matchLabels: {app: `+p+`}}, egress: [{matches: [{name: www.example.org}], ports: [{protocol: TCP, port: 80}]}]}`))
		s.enforced(soon, p)
		line, took := s.followed(p, func() { s.gets(p, "tcp", "other.test", 80, denied) })
		t.Logf("%s: the line came %v after the connection", n, took.Round(time.Millisecond))
		if len(line.Names) == 0 || line.Names[0].Name != "other.test" || line.Destination.Port != 80 || line.Pod.Name != p || line.Node != n {
			t.Errorf("the line is %+v", line)
		}
		if took > 10*time.Second { // repetitions are logged after a minute
			t.Errorf("%s: the line came %v after the connection", n, took)
		}
		why := told[explain.Explanation](s, 1, "explain", p, "other.test:80", "-n", s.ns)
		if why.Verdict != explain.Denied || why.Node != n || why.Advice == nil || why.Advice.Manifest == "" || len(why.Flows) == 0 {
			t.Fatalf("explained as %+v", why)
		}
		t.Logf("%s: %s", n, why.Reason)
		s.apply(why.Advice.Manifest)
		s.eventually(soon, "what explain advised", func() error {
			g, err := the.Get(s.ctx, s.ref(p), "tcp", "other.test", 80)
			if err == nil && !works.has(g.Class) {
				err = fmt.Errorf("%s", g.Class)
			}
			return err
		})
		if after := told[explain.Explanation](s, 0, "explain", p, "other.test:80", "-n", s.ns); after.Verdict != explain.Allowed {
			t.Errorf("afterwards it is %s: %s", after.Verdict, after.Reason)
		}
		s.dials(p, "tcp", raw, denied) // no more than advised
	}
}

// followed follows the denied connections of a pod while f runs, and returns the
// line of the first, and how long it took.
func (s *scenario) followed(pod string, f func()) (line audit.Line, took time.Duration) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	type arrived struct {
		text string
		at   time.Time
	}
	lines, done := make(chan arrived, 64), make(chan error, 1)
	begin := time.Now()
	go func() {
		done <- the.Follow(ctx, func(text string) { lines <- arrived{text, time.Now()} },
			"namegate", "audit", "-f", "-n", s.ns, "--pod", pod, "--verdict", "denied", "-o", "json")
	}()
	// Any line shows that it follows: each of these denials is the first of its kind.
	for port, follows := 8000, false; !follows; port++ {
		s.dials(pod, "tcp", fmt.Sprintf("203.0.113.99:%d", port), denied)
		select {
		case <-lines:
			follows = true
		case err := <-done:
			s.Fatalf("it does not follow: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Since(begin) > patient {
			s.Fatal("it does not follow")
		}
	}
	f()
	for {
		select {
		case l := <-lines:
			line = audit.Line{} // missing fields stay empty
			if err := json.Unmarshal([]byte(l.text), &line); err != nil {
				s.Fatalf("%v in %s", err, l.text)
			}
			if line.Time.Before(begin) || line.Destination == nil || line.Destination.Port >= 8000 || len(line.Names) == 0 {
				continue // from earlier denials
			}
			return line, l.at.Sub(line.Time)
		case err := <-done:
			s.Fatalf("following ended: %v", err)
		case <-time.After(patient):
			s.Fatal("no line")
		}
	}
}

// testSuggest: the suggestion after a run in Audit mode allows the same run in Enforce
// mode, and nothing else.
func testSuggest(t *testing.T) {
	s := begin(t, "learn")
	s.run(pod("a", "node-a", map[string]string{"app": "one"}), pod("b", "node-b", map[string]string{"app": "two"}),
		policy("watch", `{podSelector: {}, enforcement: Audit, egress: [{matches: [{name: unused.test}]}]}`))
	s.eventually(soon, "the policy", func() error {
		rows := told[console.PodRows](s, 0, "pods", "-n", s.ns)
		for _, p := range rows.Pods {
			if p.Enforcement != "Audit" {
				return fmt.Errorf("%s is %q", p.Name, p.Enforcement)
			}
		}
		return nil
	})
	run := func() {
		s.gets("a", "tcp", "www.example.org", 80, works)
		s.gets("b", "tcp", "other.test", 80, works)
		s.gets("b", "udp", "www.example.org", 80, works)
	}
	run()
	var suggested string
	s.eventually(soon, "suggestions", func() error {
		out, code, err := s.namegate("suggest", "-n", s.ns)
		if code != 0 {
			return err
		}
		if !strings.Contains(out, "www.example.org") || !strings.Contains(out, "other.test") || !strings.Contains(out, "UDP") {
			return fmt.Errorf("suggested is\n%s", out)
		}
		suggested = out
		return nil
	})
	t.Log(suggested)
	s.kubectl("delete", "fqdnnp", "-n", s.ns, "watch")
	s.apply(suggested)
	s.enforced(soon, "a")
	s.enforced(soon, "b")
	run()
	s.gets("a", "tcp", "other.test", 80, denied)
	s.gets("b", "tcp", "www.example.org", 80, denied)
}
