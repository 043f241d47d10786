package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/print"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/stats"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/webtest"
)

// TestLinesOfAllAgents: lines that agents remember and new ones arrive, of agents that come later too.
func TestLinesOfAllAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := nodeOf(t, 1), nodeOf(t, 2)
		one.Log(dns("shop/cart-1", "before.test", "allowed"))
		c := &cluster{nodes: []*webtest.Node{one}, viewer: serve.Everything{}}
		o := c.open(t, "")
		one.Log(dns("shop/cart-1", "after.test", "allowed"))
		synctest.Wait()
		diff.Error(t, []string{"after.test", "before.test"}, o.names(t, ""))
		c.set(nil, one, two)
		two.Log(dns("shop/cart-2", "new.test", "allowed"))
		time.Sleep(findEvery)
		synctest.Wait()
		diff.Error(t, []string{"new.test", "after.test", "before.test"}, o.names(t, ""))
		diff.Error(t, []string{"node-1 well", "node-2 well"}, o.states())
		c.set(nil, one)
		time.Sleep(findEvery)
		synctest.Wait()
		if d := cmp.Diff([]string{"node-1 well"}, o.states()); d != "" || two.Streams() != 0 {
			t.Errorf("%d follow an agent that is listed no more: %s", two.Streams(), d)
		}
		c.set(errNotFound)
		time.Sleep(findEvery)
		synctest.Wait()
		if a := o.feed.agents(); !strings.Contains(a.Message, "the API server is away") || len(a.Agents) != 1 {
			t.Errorf("agents cannot be found: %+v", a)
		}
	})
}

// TestAgentGoesAndComesBack: the page says so, the agent is asked again with longer and longer pauses,
// and no line of its successor comes twice.
func TestAgentGoesAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := nodeOf(t, 1), nodeOf(t, 2)
		c := &cluster{nodes: []*webtest.Node{one, two}, viewer: serve.Everything{}}
		o := c.open(t, "")
		one.Log(dns("shop/cart-1", "first.test", "allowed"))
		synctest.Wait()
		one.Stop()
		synctest.Wait()
		diff.Error(t, []string{"node-1 unreachable", "node-2 well"}, o.states())
		if message := o.feed.agents().Agents[0].Message; !strings.Contains(message, "the agent ended") || !strings.Contains(message, "asked again after 1s") {
			t.Errorf("the message is %q", message)
		}
		asked := one.Asked(console.AuditPath)
		time.Sleep(5 * time.Minute)
		if more := one.Asked(console.AuditPath) - asked; more < 10 || more > 15 { // 1, 2, 4, 8, 16 s, then each 30 s
			t.Errorf("it was asked %d times in five minutes", more)
		}
		diff.Has(t, "no agent answers at 192.0.2.2:9954: is it running? (it is asked again after 30s)", o.feed.agents().Agents[0].Message, "the message")
		var grants Grants
		before := one.Asked(console.GrantsPath)
		o.get(t, "/api/grants", &grants)
		if len(grants.Grants) != 2 || len(grants.Failed) != 1 || grants.Failed[0].Node != "node-1" || one.Asked(console.GrantsPath) != before {
			t.Errorf("grants beside an agent that is away: %+v", grants)
		}
		one.Start()
		first := dns("shop/cart-1", "first.test", "allowed")
		first.Time = first.Time.Add(-5*time.Minute - time.Second)
		one.Log(first, dns("shop/cart-1", "second.test", "allowed"))
		time.Sleep(mostPause)
		one.Log(dns("shop/cart-1", "third.test", "allowed"))
		synctest.Wait()
		diff.Error(t, []string{"third.test", "second.test", "first.test"}, o.names(t, ""))
		diff.Error(t, []string{"node-1 well", "node-2 well"}, o.states())
	})
}

// TestSlowAgent: an agent that answers nothing is called slow, and delays no answer and no line of the
// others.
func TestSlowAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{viewer: serve.Everything{}}
		for i := range client.AskedAtOnce { // as many as are asked at a time
			slow := nodeOf(t, i+2)
			slow.Hang()
			c.nodes = append(c.nodes, slow)
		}
		one := nodeOf(t, 99) // the last by its name
		c.nodes = append(c.nodes, one)
		o := c.open(t, "")
		if states := o.states(); !slices.Contains(states, "node-2 connecting") || !slices.Contains(states, "node-99 well") {
			t.Errorf("at first: %v", states)
		}
		time.Sleep(slowAfter)
		one.Log(dns("shop/cart-99", "quick.test", "allowed"))
		synctest.Wait()
		if states := o.states(); !slices.Contains(states, "node-2 slow") || !slices.Contains(states, "node-99 well") || len(o.names(t, "")) != 1 {
			t.Errorf("later: %v", states)
		}
		began, grants := time.Now(), Grants{}
		o.get(t, "/api/grants", &grants)
		if took := time.Since(began); len(grants.Grants) != 2 || len(grants.Failed) != client.AskedAtOnce || took > patience {
			t.Errorf("after %s %d grants, without %d agents", took, len(grants.Grants), len(grants.Failed))
		}
		diff.Has(t, "did not answer within 5s", grants.Failed[0].Message, "the message")
		for _, n := range c.nodes[:client.AskedAtOnce] {
			n.Answer()
		}
		time.Sleep(statusEvery + patience) // the status is asked for again
		synctest.Wait()
		if states := o.states(); !slices.Contains(states, "node-2 well") {
			t.Errorf("at last: %v", states)
		}
		one.Hang() // its lines go on
		time.Sleep(statusEvery + slowAfter)
		one.Log(dns("shop/cart-99", "still.test", "allowed"))
		synctest.Wait()
		if states := o.states(); !slices.Contains(states, "node-99 slow") || len(o.names(t, "")) != 2 {
			t.Errorf("without a status: %v", states)
		}
		one.Answer()
		synctest.Wait()
	})
}

// TestAgentThatHangs: an answer of the others does not wait behind an agent that hangs, which the page
// does not know of yet.
func TestAgentThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := nodeOf(t, 1), nodeOf(t, 2)
		o := (&cluster{nodes: []*webtest.Node{one, two}, viewer: serve.Everything{}}).open(t, "")
		one.Hang()
		var grants Grants
		if o.get(t, "/api/grants", &grants); len(grants.Grants) != 2 || grants.Grants[0].Node != "node-2" || len(grants.Failed) != 1 {
			t.Errorf("%+v", grants)
		}
		one.Answer()
		synctest.Wait()
	})
}

// TestSuccessor: an agent that is found at another place is asked there.
func TestSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, next := nodeOf(t, 1), nodeOf(t, 1)
		c := &cluster{nodes: []*webtest.Node{one}, viewer: serve.Everything{}}
		o := c.open(t, "")
		one.Stop()
		next.Log(dns("shop/cart-1", "next.test", "allowed"))
		c.set(nil, next)
		time.Sleep(findEvery + mostPause)
		synctest.Wait()
		if d := cmp.Diff([]string{"next.test"}, o.names(t, "")); d != "" || len(o.feed.agents().Agents) != 1 {
			t.Error(d)
		}
	})
}

// TestFollowersLimit: an agent that has followers enough is asked again and again, and the page says
// why its lines are missing. The page takes one place of each agent, however many are open.
func TestFollowersLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := nodeOf(t, 1)
		one.Refuse(console.Refuse(http.StatusServiceUnavailable, "24 follow the log of this node already, and no more can"))
		o := (&cluster{nodes: []*webtest.Node{one}, viewer: consoletest.Some{"shop"}}).open(t, "shop")
		a := o.feed.agents().Agents[0]
		if a.State != Refused || !strings.HasPrefix(a.Message, "24 follow the log of this node already") {
			t.Errorf("%+v", a)
		}
		one.Refuse(nil)
		time.Sleep(leastPause)
		synctest.Wait()
		var streams []*stream
		for range 3 {
			streams = append(streams, o.stream(t))
		}
		if one.Streams() != 1 || o.feed.agents().Agents[0].State != Well {
			t.Errorf("%d streams of the agent for 3 pages: %+v", one.Streams(), o.feed.agents())
		}
		for _, s := range streams {
			s.close()
		}
	})
}

// TestProblemsOfAgents: the page has what `namegate status` finds wrong, or why it has not.
func TestProblemsOfAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := nodeOf(t, 1)
		one.SetStatus(func(s *console.Status) {
			s.Failing = "the kernel is full"
			s.Enforcer.Deviations = []stats.Deviation{{Object: "heartbeat", Since: time.Now()}}
		})
		o := (&cluster{nodes: []*webtest.Node{one}, viewer: serve.Everything{}}).open(t, "")
		a := o.feed.agents().Agents[0]
		if len(a.Problems) != 2 || a.Problems[0] != (print.Finding{What: "failing", Message: "the kernel is full"}) || a.Problems[1].What != "not as wanted" || a.Version != "v1" {
			t.Errorf("%+v", a)
		}
		one.Lose(17)
		one.SetStatus(func(s *console.Status) { s.Failing, s.Enforcer.Deviations = "", nil })
		time.Sleep(statusEvery)
		synctest.Wait()
		if a := o.feed.agents().Agents[0]; len(a.Problems) != 0 || a.Lost != 17 {
			t.Errorf("later: %+v", a)
		}
		viewer := (&cluster{nodes: []*webtest.Node{one}, viewer: consoletest.Some{"shop"}}).open(t, "shop")
		if a := viewer.feed.agents().Agents[0]; a.State != Well || !strings.Contains(a.NoProblems, "you may not see all namespaces") {
			t.Errorf("for a viewer of a namespace: %+v", a)
		}
	})
}

// TestManyAgents: beyond the bound agents are left out, and the page says so.
func TestManyAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{viewer: serve.Everything{}}
		n := nodeOf(t, 1)
		for range maxAgents + 3 {
			c.nodes = append(c.nodes, n)
		}
		o := c.open(t, "")
		if a := o.feed.agents(); !strings.HasPrefix(a.Message, fmt.Sprintf("3 agents are left out: the first %d are followed", maxAgents)) {
			t.Errorf("%q", a.Message)
		}
	})
}
