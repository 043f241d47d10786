package proxy

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

func TestPlan(t *testing.T) {
	l := newLab(t, nil)
	config, snap := l.s.setup.Load().config, l.s.snapshot.Load()
	words := map[action]string{pass: "pass", open: "open", complete: "complete", notThere: "notThere", refuse: "refuse"}
	const web, quiet, strict, watched, both = 0, 1, 2, 3, 5
	for _, tt := range []struct {
		pod    int
		q      string
		action action
		base   string
		would  audit.Verdict
	}{
		{web, "www.example.org", open, "", audit.None},
		{web, "example.org", pass, "", audit.None},
		{web, "a.wild.test", open, "", audit.None},
		{web, "a.b.wild.test", pass, "", audit.None},
		{web, "wild.test", pass, "", audit.None},
		{web, ".", pass, "", audit.None},
		{web, `www\.example.org`, pass, "", audit.None},
		{web, "www.example.org.shop.svc.cluster.local", complete, "www.example.org", audit.None},
		{web, "www.example.org.other.svc.cluster.local", pass, "", audit.None}, // not this pod's namespace
		{web, "www.example.org.svc.cluster.local", complete, "www.example.org", audit.None},
		{web, "www.example.org.cluster.local", complete, "www.example.org", audit.None},
		{web, "www.example.org.corp.test", complete, "www.example.org", audit.None},
		{web, "a.wild.test.corp.test", complete, "a.wild.test", audit.None},
		{web, `www.example.org\.corp.test`, pass, "", audit.None},
		{web, "corp.test", pass, "", audit.None},
		{web, "other.test.corp.test", pass, "", audit.None},
		{web, "db.shop.svc.cluster.local", open, "", audit.None},
		{quiet, "other.test", notThere, "", audit.None},
		{quiet, "www.example.org.corp.test", notThere, "", audit.None},
		{quiet, "www.example.org.svc.cluster.local", complete, "www.example.org", audit.None},
		{quiet, "x.shop.svc.cluster.local", pass, "", audit.None},
		{quiet, "cluster.local", pass, "", audit.None},
		{quiet, "xcluster.local", notThere, "", audit.None},
		{strict, "other.test", refuse, "", audit.None},
		{strict, "other.test.corp.test", refuse, "", audit.None},
		{strict, "www.example.org.corp.test", notThere, "", audit.None},
		{strict, "x.shop.svc.cluster.local", pass, "", audit.None},
		{watched, "www.example.org", pass, "", audit.Allowed},
		{watched, "other.test", pass, "", audit.Unmatched},
		{watched, "www.example.org.corp.test", pass, "", audit.Unmatched},
		{both, "one.test", open, "", audit.None},
		{both, "two.test", pass, "", audit.Allowed},
		{both, "three.test", pass, "", audit.None},
		{both, "two.test.corp.test", pass, "", audit.None}, // audited, so no completion
	} {
		p := planFor(snap.ViewOf(labPods[tt.pod].PodRef), policytest.Name(tt.q), dns.TypeA, config, nothingFollowed)
		base := ""
		if p.action == complete {
			base = p.base.Query.Name.String()
		}
		would, _ := wouldBe(snap.ViewOf(labPods[tt.pod].PodRef), &p.decision)
		if p.action != tt.action || base != tt.base || would != tt.would {
			t.Errorf("%s asks %s: %s base %q would %q, want %s base %q would %q", labPods[tt.pod].Name, tt.q,
				words[p.action], base, would, words[tt.action], tt.base, tt.would)
		}
		if (p.action == open) != p.decision.Allowed() || (p.action == complete) != p.base.Allowed() {
			t.Errorf("%s asks %s: decisions %v and %v do not fit", labPods[tt.pod].Name, tt.q, p.decision, p.base)
		}
	}
}

// TestPlanWithAnotherClusterDomain: the domain is the configuration's.
func TestPlanWithAnotherClusterDomain(t *testing.T) {
	c, err := corefile.Parse("Corefile", ". {\nforward . 198.51.100.53\ncluster k8s.test\n}")
	fatal.If(t, err)
	strict := compiled(t, labPolicies, labPods).ViewOf(labPods[2].PodRef)
	for q, want := range map[string]action{
		"x.k8s.test": pass, "x.cluster.local": refuse,
		"www.example.org.shop.svc.k8s.test": complete, "www.example.org.shop.svc.cluster.local": refuse,
	} {
		if p := planFor(strict, policytest.Name(q), dns.TypeA, c, nothingFollowed); p.action != want {
			t.Errorf("%s: %d, want %d", q, p.action, want)
		}
	}
}

// TestPlanOpensMatchesOnly is the promise in small: over many names, open
// and complete are exactly the names that an enforcing match covers.
func TestPlanOpensMatchesOnly(t *testing.T) {
	l := newLab(t, nil)
	config, snap := l.s.setup.Load().config, l.s.snapshot.Load()
	parts := []string{"www", "example", "org", "wild", "test", "one", "two", "corp", "svc", "shop", "cluster", "local"}
	var names []string
	for _, a := range parts {
		for _, b := range parts {
			names = append(names, a+"."+b)
			for _, c := range parts {
				names = append(names, a+"."+b+"."+c)
			}
		}
	}
	opened := 0
	for _, view := range snap.Views {
		for _, text := range names {
			n := policytest.Name(text)
			want := false
			for r := range view.Rules.All() {
				for _, m := range r.Matches {
					want = want || !m.Audit && m.Pattern.Matches(n)
				}
			}
			if got := planFor(view, n, dns.TypeA, config, nothingFollowed).action == open; got != want {
				t.Fatalf("%s asks %s: open %v, want %v", view.Pod.Name, text, got, want)
			} else if got {
				opened++
			}
		}
	}
	if opened == 0 {
		t.Error("no name was open")
	}
}

func TestLabel(t *testing.T) {
	diff.Equal(t, policytest.Name("svc.cluster.local"), label("svc")+policytest.Name("cluster.local"))
	if got := fqdn.Name(""); answer.Presentation(got) != "." || answer.Presentation(policytest.Name(`a\.b.test`)) != `a\.b.test.` {
		t.Errorf("%q", answer.Presentation(got))
	}
}

func nothingFollowed(fqdn.Name) (via, aliases []fqdn.Name) { return nil, nil }
