package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/testkit/fatal"
)

// line is one of the audit log: of a pod at a second after noon.
func line(second int, pod, verdict string) string {
	ns, name, _ := strings.Cut(pod, "/")
	at := noon.Add(time.Duration(second) * time.Second).Format(time.RFC3339)
	if verdict == "denied" || verdict == "would-deny" {
		return fmt.Sprintf(`{"v":1,"kind":"flow","time":%q,"node":"node-1","verdict":%q,"pod":{"namespace":%q,"name":%q,"ip":"10.1.0.10"},"protocol":"tcp","destination":{"address":"203.0.113.7","port":443},`+
			`"names":[{"name":"own.test","asked":"2026-05-01T11:59:00Z"},{"name":"secret.pay.test","asked":"2026-05-01T11:59:00Z","pod":"pay/cart-7d9f"}],"reason":"another","policies":["shop/base"],"count":1}`+"\n", at, verdict, ns, name)
	}
	return fmt.Sprintf(`{"v":1,"kind":"dns","time":%q,"node":"node-1","verdict":%q,"pod":{"namespace":%q,"name":%q,"ip":"10.1.0.10"},"question":{"name":"x%d.test","type":"A","class":"IN"},"rcode":"NOERROR","latency_us":1,"protocol":"udp"}`+"\n", at, verdict, ns, name, second)
}

// asked returns the lines that an agent answers with.
func askedFor(t *testing.T, a Agent, query string) string {
	t.Helper()
	q, err := url.ParseQuery(query)
	fatal.If(t, err)
	resp, err := a.Ask(context.Background(), AuditPath, q)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	body, err := io.ReadAll(resp.Body)
	fatal.If(t, err)
	return string(body)
}

// TestAuditFilter: exactly the selected lines are returned, unchanged.
func TestAuditFilter(t *testing.T) {
	all := []string{
		line(0, "shop/cart-7d9f", "allowed"), line(1, "shop/cart-7d9f", "denied"), line(2, "shop/front-1", "unmatched"),
		line(3, "pay/cart-7d9f", "would-deny"), line(4, "pay/cart-7d9f", "failed"), "{broken\n", `{"v":1,"kind":"weather"}` + "\n",
	}
	w := newWorld(t, "node-1")
	w.recent = []byte(strings.Join(all, ""))
	for query, want := range map[string][]int{
		"":                                        {0, 1, 2, 3, 4, 6},
		"namespace=shop":                          {0, 1, 2},
		"pod=cart-7d9f":                           {0, 1, 3, 4},
		"pod=pay/cart-7d9f":                       {3, 4},
		"namespace=pay&pod=cart-7d9f":             {3, 4},
		"verdict=denied,would-deny":               {1, 3},
		"verdict=denied&verdict=failed":           {1, 4},
		"kind=flow":                               {1, 3},
		"kind=dns&verdict=denied":                 {},
		"since=2026-05-01T12:00:03Z":              {3, 4},
		"since=2026-05-01T12:00:03%2B02:00":       {0, 1, 2, 3, 4},
		"namespace=shop&kind=dns&verdict=allowed": {0},
	} {
		var lines string
		for _, i := range want {
			lines += all[i]
		}
		if d := cmp.Diff(lines, askedFor(t, agentOf("", w, Everything{}), query)); d != "" {
			t.Errorf("%s (-want +got):\n%s", query, d)
		}
	}
}

// TestAuditSince: a flow that was counted on since counts.
func TestAuditSince(t *testing.T) {
	counted := strings.Replace(line(0, "shop/cart-7d9f", "denied"), `"count":1`, `"count":9,"last":"2026-05-01T12:00:50Z"`, 1)
	w := newWorld(t, "node-1")
	w.recent = []byte(line(0, "shop/cart-7d9f", "denied") + counted)
	if d := cmp.Diff(counted, askedFor(t, agentOf("", w, Everything{}), "since=2026-05-01T12:00:30Z")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestAuditHides: a viewer of one namespace gets its lines, without the names that
// only pods of others asked for.
func TestAuditHides(t *testing.T) {
	w := newWorld(t, "node-1")
	w.recent = []byte(line(0, "shop/cart-7d9f", "allowed") + line(1, "shop/cart-7d9f", "denied") + line(2, "pay/cart-7d9f", "allowed"))
	got := askedFor(t, agentOf("", w, some{"shop"}), "namespace=shop")
	if strings.Contains(got, "secret") || strings.Contains(got, "pay") || strings.Count(got, "\n") != 2 || !strings.Contains(got, "own.test") {
		t.Errorf("it is shown:\n%s", got)
	}
	if both := askedFor(t, agentOf("", w, some{"shop", "pay"}), "namespace=shop"); !strings.Contains(both, "secret.pay.test") {
		t.Errorf("who sees both namespaces does not get the name:\n%s", both)
	}
}

// tape is a Follower that plays batches.
type tape struct {
	batches chan batch
	closed  sync.Once
	over    chan struct{}
}

type batch struct {
	lines string
	lost  uint64
}

func newTape(batches ...batch) *tape {
	f := &tape{batches: make(chan batch, 64), over: make(chan struct{})}
	for _, b := range batches {
		f.batches <- b
	}
	return f
}

func (f *tape) Next(ctx context.Context) ([]byte, uint64, error) {
	select {
	case b, more := <-f.batches:
		if !more {
			return nil, 0, io.EOF
		}
		return []byte(b.lines), b.lost, nil
	case <-f.over:
		return nil, 0, io.EOF
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

func (f *tape) Close() { f.closed.Do(func() { close(f.over) }) }

// TestFollow: recent and new lines, each once, and the number of lost ones.
func TestFollow(t *testing.T) {
	var l [6]string
	for i := range l {
		l[i] = line(i, "shop/cart-7d9f", "allowed")
	}
	lost := `{"v":1,"kind":"lost","count":7}` + "\n"
	for what, c := range map[string]struct {
		recent  string
		batches []batch
		want    string
	}{
		"nothing was":        {"", []batch{{l[0] + l[1], 0}, {l[2], 0}}, l[0] + l[1] + l[2]},
		"behind each other":  {l[0] + l[1], []batch{{l[2], 0}, {l[3], 0}}, l[0] + l[1] + l[2] + l[3]},
		"some are in both":   {l[0] + l[1] + l[2], []batch{{l[1] + l[2] + l[3], 0}, {l[4], 0}}, l[0] + l[1] + l[2] + l[3] + l[4]},
		"all are in both":    {l[0] + l[1], []batch{{l[0] + l[1], 0}, {l[1], 0}}, l[0] + l[1] + l[1]},
		"some of it is lost": {l[0], []batch{{l[1], 7}, {l[2], 0}}, l[0] + l[1] + lost + l[2]},
		"filtered":           {line(0, "pay/x", "allowed"), []batch{{line(1, "pay/x", "allowed") + l[2], 0}}, l[2]},
	} {
		w := newWorld(t, "node-1")
		w.recent = []byte(c.recent)
		played := newTape(c.batches...)
		close(played.batches)
		w.follow = func() Follower { return played }
		if d := cmp.Diff(c.want, askedFor(t, agentOf("", w, some{"shop"}), "follow=1&namespace=shop")); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
		select {
		case <-played.over:
		default:
			t.Errorf("%s: the follower is not closed", what)
		}
	}
}

// once sees namespaces for a given number of questions.
type once struct{ left *int }

func (o once) Sees(context.Context, string) (bool, error) {
	*o.left--
	if *o.left < -1 {
		return false, errors.New("the API server is away")
	}
	return *o.left >= 0, nil
}

func (once) Name() string { return "somebody" }

func (o once) SeesCluster(context.Context, bool) (bool, error) { return false, nil }

// TestRightsEnd: a stream ends when its viewer may not see it any more.
func TestRightsEnd(t *testing.T) {
	w := newWorld(t, "node-1")
	w.recent = []byte(line(0, "shop/cart-7d9f", "allowed"))
	played := newTape(batch{line(1, "shop/cart-7d9f", "allowed"), 0}, batch{line(2, "shop/cart-7d9f", "allowed"), 0})
	w.follow = func() Follower { return played }
	left := 3 // the question itself, and two batches
	got := askedFor(t, agentOf("", w, once{&left}), "follow=1&namespace=shop")
	if want := line(0, "shop/cart-7d9f", "allowed") + line(1, "shop/cart-7d9f", "allowed"); got != want {
		t.Errorf("it got %s", got)
	}
}

// shown runs Lines over agents until ctx ends or they do, and returns the output.
func show(ctx context.Context, t *testing.T, format string, follow bool, f AuditFilter, agents func(context.Context) ([]Agent, error)) (out, warn string, err error) {
	t.Helper()
	p, o, w := printed(format, false)
	err = (&Lines{Printer: p, Filter: f, Agents: agents, After: func(time.Duration) <-chan time.Time {
		c := make(chan time.Time)
		close(c)
		return c
	}}).Show(ctx, follow)
	return o.String(), w.String(), err
}

// TestLinesGolden: lines for people and for programs.
func TestLinesGolden(t *testing.T) {
	dns := strings.Replace(line(7, "shop/front-1", "unmatched"), `"rcode"`,
		`"would":"allowed","matches":[{"policy":"shop/watch","path":"p","match":"*.x.test","audit":true}],"answers":[{"address":"192.0.2.1","granted":true},{"address":"10.1.0.9","granted":false,"blocked":"pod"},{"address":"192.0.2.2","granted":false}],"rcode"`, 1)
	failed := strings.Replace(line(8, "shop/a-pod-with-a-name-that-is-long-enough", "failed"), `"latency_us"`, `"error":"no upstream of zone . answered in 4s","latency_us"`, 1)
	counted := strings.Replace(line(9, "shop/cart-7d9f", "would-deny"), `"count":1`, `"count":1000,"last":"2026-05-01T12:00:50.25Z"`, 1)
	v6 := strings.Replace(strings.Replace(line(10, "shop/cart-7d9f", "denied"), `"203.0.113.7"`, `"2001:db8::7"`, 1), `"names"`, `"unnamed"`, 1)
	icmp := strings.Replace(strings.Replace(line(11, "shop/cart-7d9f", "denied"), `,"port":443`, "", 1), `"tcp"`, `"icmp"`, 1)
	kept := strings.Replace(line(12, "shop/cart-7d9f", "renewed"), `"rcode"`,
		`"matches":[{"policy":"shop/base","path":"p","match":"*.x.test"}],"answers":[{"address":"192.0.2.1","granted":true}],"rcode"`, 1)
	kept = strings.Replace(kept, `"protocol"`, `"renewed":"connection","protocol"`, 1)
	w := newWorld(t, "node-1")
	w.recent = []byte(line(0, "shop/cart-7d9f", "allowed") + dns + failed + counted + v6 + icmp + kept)
	for name, agents := range map[string][]Agent{"audit": {agentOf("", w, Everything{})}, "audit-nodes": {agentOf("node-1", w, Everything{}), agentOf("node-2", w, Everything{})}} {
		shows(t, name, func(p *Printer) error {
			return (&Lines{Printer: p, Agents: func(context.Context) ([]Agent, error) { return agents, nil }}).Show(context.Background(), false)
		})
	}
}

// TestLinesExample: the lines that docs/commands.md shows.
func TestLinesExample(t *testing.T) {
	allowed := strings.Replace(line(0, "shop/cart-7d9f", "allowed"), `"rcode"`,
		`"matches":[{"policy":"shop/base","path":"p","match":"*.cdn.test"}],"answers":[{"address":"192.0.2.10","granted":true}],"rcode"`, 1)
	denied := strings.Replace(line(2, "shop/cart-7d9f", "denied"), `,{"name":"secret.pay.test","asked":"2026-05-01T11:59:00Z","pod":"pay/cart-7d9f"}`, "", 1)
	denied = strings.NewReplacer(`"another"`, `"unmatched"`, "own.test", "bank.test").Replace(denied)
	again := strings.Replace(denied, `"count":1`, `"count":11,"last":"2026-05-01T12:00:58Z"`, 1)
	again = strings.Replace(again, "12:00:02", "12:00:05", 1)
	body := strings.ReplaceAll(allowed, "x0.test", "a.cdn.test") + strings.Replace(line(1, "shop/cart-7d9f", "unmatched"), "x1.test", "bank.test", 1) + denied + again
	out, _, err := show(context.Background(), t, FormatTable, false, AuditFilter{}, func(context.Context) ([]Agent, error) { return []Agent{&fixed{body: body}}, nil })
	fatal.If(t, err)
	golden(t, "audit-example", out)
}

// TestLinesOfSeveral: the lines of all agents, by their times; an unavailable agent is
// reported.
func TestLinesOfSeveral(t *testing.T) {
	one, two := newWorld(t, "node-1"), newWorld(t, "node-2")
	one.recent = []byte(line(0, "shop/a", "allowed") + line(2, "shop/a", "allowed"))
	two.recent = []byte(line(1, "shop/b", "allowed") + line(3, "shop/b", "allowed"))
	agents := []Agent{agentOf("node-1", one, Everything{}), agentOf("node-2", two, Everything{}), &agent{node: "node-3", err: errAway}}
	out, warn, err := show(context.Background(), t, FormatJSON, false, AuditFilter{}, func(context.Context) ([]Agent, error) { return agents, nil })
	if want := line(0, "shop/a", "allowed") + line(1, "shop/b", "allowed") + line(2, "shop/a", "allowed") + line(3, "shop/b", "allowed"); out != want {
		t.Errorf("the lines are:\n%s", out)
	}
	if ExitCode(err) != ExitUnreachable || warn != "namegate: node-3: no agent answers at 192.0.2.2:9954\n" {
		t.Errorf("%v, %q", err, warn)
	}
}

// TestUnreadableLines: unreadable lines are reported, and cost no other line.
func TestUnreadableLines(t *testing.T) {
	body := line(0, "shop/a", "allowed") + `{"v":2,"kind":"dns"}` + "\n" + `{"v":1,"kind":"lost","count":3}` + "\n" + line(1, "shop/a", "denied")
	out, warn, err := show(context.Background(), t, FormatTable, false, AuditFilter{}, func(context.Context) ([]Agent, error) { return []Agent{&fixed{body: body}}, nil })
	if err != nil || strings.Count(out, "\n") != 2 {
		t.Errorf("%v:\n%s", err, out)
	}
	if !strings.Contains(warn, "a line is left out: its version is 2") || !strings.Contains(warn, "3 lines are lost") {
		t.Errorf("warned of %q", warn)
	}
}

// TestLinesRefuse: words that no log has cost no question.
func TestLinesRefuse(t *testing.T) {
	_, _, err := show(context.Background(), t, FormatTable, false, AuditFilter{Verdicts: []string{"deny"}}, func(context.Context) ([]Agent, error) {
		return nil, errors.New("somebody was asked")
	})
	if err == nil || !strings.Contains(err.Error(), `verdict "deny" is not known`) {
		t.Error(err)
	}
}

// relay answers each question with the next of its agents.
type relay struct{ agents []Agent }

func (r *relay) next(context.Context) ([]Agent, error) {
	if len(r.agents) == 0 {
		return nil, errAway
	}
	a := r.agents[0]
	if len(r.agents) > 1 {
		r.agents = r.agents[1:]
	}
	return []Agent{a}, nil
}

// TestFollowContinuesWithTheNextAgent: an agent that ends is asked again, from the last
// line on, and so is its successor; no line is shown twice.
func TestFollowContinuesWithTheNextAgent(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first, second := newWorld(t, "node-1"), newWorld(t, "node-1")
	first.recent = []byte(line(0, "shop/a", "allowed"))
	played := newTape(batch{line(1, "shop/a", "allowed"), 0})
	close(played.batches)
	first.follow = func() Follower { return played }
	second.recent = []byte(line(1, "shop/a", "allowed") + line(2, "shop/a", "denied"))
	second.follow = func() Follower { return endless{cancel} }
	r := &relay{agents: []Agent{agentOf("", first, Everything{}), &agent{err: errAway}, agentOf("", second, Everything{})}}
	out, warn, err := show(ctx, t, FormatJSON, true, AuditFilter{}, r.next)
	fatal.If(t, err)
	if want := line(0, "shop/a", "allowed") + line(1, "shop/a", "allowed") + line(2, "shop/a", "denied"); out != want {
		t.Errorf("shown:\n%s", out)
	}
	if strings.Count(warn, "the agent ended") != 1 {
		t.Errorf("warned of %q", warn)
	}
}

// endless ends the follower once it asks for new lines.
type endless struct{ cancel func() }

func (e endless) Next(ctx context.Context) ([]byte, uint64, error) {
	e.cancel()
	<-ctx.Done()
	return nil, 0, ctx.Err()
}
func (endless) Close() {}

// TestFollowRefused: a caller without rights, or without any reachable agent, gets an
// error.
func TestFollowRefused(t *testing.T) {
	for want, a := range map[int]Agent{ExitUnreachable: &agent{err: errAway}, ExitForbidden: agentOf("", newWorld(t, "node-1"), some{})} {
		_, _, err := show(context.Background(), t, FormatTable, true, AuditFilter{}, func(context.Context) ([]Agent, error) { return []Agent{a}, nil })
		if ExitCode(err) != want {
			t.Errorf("%v: exit code %d, want %d", err, ExitCode(err), want)
		}
	}
}

// TestStreamIsPrompt: over a real connection a line arrives while the stream continues.
func TestStreamIsPrompt(t *testing.T) {
	w := newWorld(t, "node-1")
	played := newTape()
	w.follow = func() Follower { return played }
	a := agentOf("", w, Everything{})
	a.server = httptest.NewServer(a.handler)
	defer a.server.Close()
	resp, err := a.Ask(context.Background(), AuditPath, url.Values{"follow": {"1"}})
	if err != nil {
		t.Fatal(err) // the answer begins before there is a line
	}
	for i := range 3 {
		want := line(i, "shop/a", "allowed")
		played.batches <- batch{want, 0}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(resp.Body, got); err != nil || !bytes.Equal(got, []byte(want)) {
			t.Fatalf("%v: %s", err, got)
		}
	}
	resp.Body.Close()
	<-played.over // the server notices that the follower is gone
}
