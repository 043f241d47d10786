package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console/web"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/webtest"
)

// testUI: the page of a user with permission for one namespace has that namespace's flows, as they
// happen, and nothing of another namespace.
func testUI(t *testing.T) {
	s, other := begin(t, "ui"), begin(t, "elsewhere")
	const spec = `{podSelector: {}, egress: [{matches: [{name: www.example.org}, {name: unused.test}], ports: [{protocol: TCP, port: 80}]}]}`
	s.run(pod("a", "node-a", map[string]string{"app": "shop"}), policy("one", spec))
	other.run(pod("c", "node-a", map[string]string{"app": "bank"}), policy("two", spec))
	s.enforced(soon, "a")
	other.enforced(soon, "c")
	s.gets("a", "tcp", "www.example.org", 80, works)
	s.gets("a", "tcp", "other.test", 80, denied)
	other.gets("c", "tcp", "www.example.org", 80, works)
	other.gets("c", "tcp", "two.test", 80, denied)

	dora := s.viewer("dora")
	p := s.page("--kubeconfig=" + dora)
	var session web.Session
	p.get("/api/session", &session)
	diff.Equal(t, s.ns, session.Namespace, "the session", session)
	s.eventually(soon, "the flows of before", func() error {
		var lines web.Lines
		p.get("/api/lines", &lines)
		if !slices.ContainsFunc(lines.Lines, isAllowed("www.example.org")) || !slices.ContainsFunc(lines.Lines, isDenied("other.test", 80)) {
			return fmt.Errorf("the lines are %+v", lines.Lines)
		}
		return nil
	})
	var policies web.Policies
	p.get("/api/policies", &policies)
	if len(policies.Policies) != 1 || len(policies.Policies[0].Matches) != 2 {
		t.Fatalf("the policies are %+v", policies)
	}
	if one := policies.Policies[0]; one.Namespace != s.ns || one.Name != "one" || one.Selected != 1 || one.Matches[0].Hits == 0 || !slices.Equal(one.Unused, []string{"spec.egress[0].matches[1]"}) {
		t.Errorf("the policy is %+v", one)
	}
	var why web.Explained
	p.get("/api/explain?pod=ui/a&target=other.test&port=80", &why)
	if !strings.HasPrefix(why.Text, "ui/a to other.test:80/tcp: denied") {
		t.Errorf("explained as\n%s", why.Text)
	}
	for _, path := range []string{"session", "lines", "policies", "policies?namespace=" + other.ns, "grants"} {
		if status, text := p.ask(p.address, "/api/"+path); status != http.StatusOK || strings.Contains(text, other.ns) || strings.Contains(text, "two.test") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := p.ask(p.address, "/api/explain?pod=elsewhere/c&target=two.test&port=80"); status != http.StatusBadRequest {
		t.Errorf("a pod of another namespace: %d %s", status, text)
	}
	// She may not list the pods there, so all agents would be asked.
	other.refused(4, "would send your token", "ui", "-n", other.ns, "--kubeconfig="+dora)
	refused := other.page("--kubeconfig="+dora, "--all-agents")
	s.eventually(soon, "a refusal", func() error {
		if status, text := refused.ask(refused.address, "/api/policies"); status != http.StatusForbidden {
			return fmt.Errorf("policies of another namespace: %d %s", status, text)
		}
		return nil
	})
	for _, path := range []string{"session", "lines", "policies", "events"} {
		if status, text := p.ask(p.address+"x", "/api/"+path); status != http.StatusUnauthorized {
			t.Errorf("%s with another token: %d %s", path, status, text)
		}
	}

	p.follow()
	other.dials("c", "tcp", "203.0.113.99:9999", denied)
	p.arrives("after the start", 10000)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		diff.Equal(t, s.ns, l.Line.Pod.Namespace, "a line of another namespace", l)
	}
}

// page is a running kubectl namegate ui.
type page struct {
	*scenario
	address string
	client  http.Client

	mu    sync.Mutex
	lines []web.Numbered // that came since follow
}

// page starts kubectl namegate ui for the scenario's namespace; it ends with the test.
func (s *scenario) page(args ...string) *page {
	s.Helper()
	p := &page{scenario: s, client: http.Client{Transport: &http.Transport{DialContext: the.DialControl}}}
	ctx, cancel := context.WithCancel(s.ctx)
	address, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- the.Follow(ctx, func(line string) { address <- line }, append([]string{"namegate", "ui", "-n", s.ns}, args...)...)
	}()
	s.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	})
	select {
	case p.address = <-address:
	case err := <-done:
		done <- nil
		s.Fatalf("the page ended: %v", err)
	case <-time.After(patient):
		s.Fatal("no address is printed")
	}
	return p
}

// ask returns the status and the text of an answer.
func (p *page) ask(address, path string) (status int, text string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patient)
	defer cancel()
	resp, err := webtest.Get(ctx, &p.client, address, path)
	fatal.If(p, err)
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	fatal.If(p, err)
	return resp.StatusCode, string(all)
}

// get decodes an answer, which must be a success.
func (p *page) get(path string, into any) {
	p.Helper()
	status, text := p.ask(p.address, path)
	if status != http.StatusOK {
		p.Fatalf("%s: %d %s", path, status, text)
	}
	fatal.If(p, json.Unmarshal([]byte(text), into))
}

// follow collects the lines of the page's stream until the test ends.
func (p *page) follow() {
	p.Helper()
	ctx, cancel := context.WithCancel(p.ctx)
	resp, err := webtest.Get(ctx, &p.client, p.address, "/api/events")
	fatal.If(p, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer resp.Body.Close()
		for events := json.NewDecoder(resp.Body); ; {
			var event struct {
				Event string
				Data  json.RawMessage
			}
			var news web.NewLines
			if events.Decode(&event) != nil {
				return
			}
			if event.Event != "lines" || json.Unmarshal(event.Data, &news) != nil {
				continue
			}
			p.mu.Lock()
			p.lines = append(p.lines, news.Lines...)
			p.mu.Unlock()
		}
	}()
	p.Cleanup(func() { cancel(); <-ended })
}

// arrives dials one port after another until the line of such a denied connection is in the stream:
// repetitions of one connection have their line after a minute.
func (p *page) arrives(when string, first int) {
	p.Helper()
	begun, port := time.Now(), first
	p.eventually(patient, "a line "+when, func() error {
		p.dials("a", "tcp", fmt.Sprintf("203.0.113.99:%d", port), denied)
		port++
		p.mu.Lock()
		defer p.mu.Unlock()
		for dialled := first; dialled < port; dialled++ {
			if slices.ContainsFunc(p.lines, isDenied("203.0.113.99", uint16(dialled))) {
				return nil
			}
		}
		return errors.New("there is none")
	})
	p.Logf("%s, a line came %v after the first connection", when, time.Since(begun).Round(time.Millisecond))
}

// isAllowed tells whether a line is an allowed query of a name.
func isAllowed(name string) func(web.Numbered) bool {
	return func(l web.Numbered) bool {
		return l.Line.Kind == audit.KindDNS && l.Line.Verdict == "allowed" && l.Line.Question.Name == name
	}
}

// isDenied tells whether a line is a denied connection to a name, or an address, and a port.
func isDenied(to string, port uint16) func(web.Numbered) bool {
	return func(l web.Numbered) bool {
		if l.Line.Kind != audit.KindFlow || l.Line.Verdict != "denied" || l.Line.Destination.Port != port {
			return false
		}
		return l.Line.Destination.Address == to || slices.ContainsFunc(l.Line.Names, func(n audit.LineName) bool { return n.Name == to })
	}
}
