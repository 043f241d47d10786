package chartstest

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/proxy/corefile"
)

// config is the configuration that values make, as the agent reads it.
func config(t *testing.T, text string) *corefile.Config {
	t.Helper()
	data := the[*corev1.ConfigMap](t, render(t, text).objects, "ConfigMap/namegate").Data
	if len(data) != 1 {
		t.Fatalf("%d files", len(data))
	}
	c, err := corefile.Parse("Corefile", data["Corefile"])
	if err != nil {
		t.Fatalf("%v in\n%s", err, data["Corefile"])
	}
	return c
}

func parsed(t *testing.T, text string) *corefile.Config {
	t.Helper()
	c, err := corefile.Parse("Corefile", text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// same compares two configurations, all fields.
func same(t *testing.T, what string, want, got *corefile.Config) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// TestCorefile: the agent reads from the chart's values what somebody would have
// written by hand.
func TestCorefile(t *testing.T) {
	same(t, "as it comes", parsed(t, `. {
		forward . kube-dns.kube-system
		cluster cluster.local
		audit stdout
	}`), config(t, ""))

	same(t, "everything", parsed(t, `. {
		forward . kube-dns.kube-system 192.0.2.53 [2001:db8::53]:5353 {
			policy sequential
			timeout 800ms
			deadline 3s
			max_fails 0
		}
		bind 169.254.25.10
		intercept 169.254.20.10
		cluster corp.test 10.244.0.0/16 10.96.0.0/12 2001:db8:42::/56
		failclosed
		search corp.test
		rebind allow ingress.test 10.96.7.0/24
		nat64 2001:db8:64::/96
		grant timeout 400ms
		hold 5m
		mark 0x80
		audit /var/log/namegate/audit.log
		limits {
			queries 2048
			queries_per_pod 128
			rate_per_pod 500
			burst_per_pod 100
			connections 512
			connections_per_pod 32
			addresses 32
		}
	}
	corp.test partner.test {
		forward . 192.0.2.54
	}
	special.test {
		forward . 198.51.100.53:5300 {
			policy round_robin
		}
	}`), config(t, everything))

	if c := config(t, "corefile: {mark: 0x100}"); c.Mark != 0x100 {
		t.Errorf("a mark that YAML reads as a number became %#x", c.Mark)
	}
	if c := config(t, "corefile: {extra: \"hold 3m\\nnat64 2001:db8:64::/96\"}"); c.Hold != 3*time.Minute || len(c.NAT64) != 1 {
		t.Errorf("the further lines became %+v", c)
	}
}

// TestWholeCorefile: a text of one's own is taken as it is.
func TestWholeCorefile(t *testing.T) {
	const text = "# ours\n. {\n    forward . 192.0.2.53\n\n    hold 2m\n}"
	r := render(t, "cluster: {domain: not.used}\ncorefile:\n  mark: '0x80'\n  text: |\n    # ours\n    . {\n        forward . 192.0.2.53\n\n        hold 2m\n    }\n")
	if got := the[*corev1.ConfigMap](t, r.objects, "ConfigMap/namegate").Data["Corefile"]; got != text+"\n" {
		t.Errorf("%q, want %q", got, text)
	}
}

// TestRestartOn: agents are rolled exactly for what a running one does not take
// over, which the parser of the Corefile knows.
func TestRestartOn(t *testing.T) {
	stamp := func(text string) string {
		ds, _ := render(t, text).agent(t)
		return ds.Spec.Template.Annotations["namegate.io/restart-on"]
	}
	before, start := stamp(""), config(t, "")
	if before == "" {
		t.Fatal("the pods' template says nothing of the configuration")
	}
	for _, text := range []string{
		"corefile: {hold: 3m}", "corefile: {mark: '0x80'}", "corefile: {failclosed: true}", "corefile: {audit: 'off'}",
		"corefile: {bind: [169.254.25.10]}", "corefile: {intercept: [169.254.20.10]}", "corefile: {search: [corp.test]}",
		"corefile: {forward: {to: [192.0.2.53]}}", "corefile: {forward: {to: ['192.0.2.53:5353', kube-dns.kube-system]}}", "corefile: {forward: {to: [other.kube-system]}}",
		"corefile: {forward: {policy: sequential}}", "corefile: {limits: {queries: 1000}}", "corefile: {grantTimeout: 1s}",
		"corefile: {zones: [{names: [corp.test], forward: {to: [192.0.2.53]}}]}", "cluster: {ranges: [10.0.0.0/8]}", "corefile: {extra: 'nat64 2001:db8:64::/96'}", "corefile: {extra: 'hold 3m'}",
		"corefile: {forward: {to: ['[2001:db8::53]:5353', kube-dns.kube-system]}}", "corefile: {forward: {to: ['[2001:db8::53]']}}", "corefile: {forward: {to: ['2001:db8::53', '[2001:db8::54]:53']}}",
	} {
		needs := config(t, text).NeedsRestart(start)
		if rolls := stamp(text) != before; rolls != (len(needs) > 0) {
			t.Errorf("%s: rolls the agents: %v; needs a restart: %v", text, rolls, needs)
		}
	}
}

// TestRestartOnText: of a text of one's own the agents are rolled for all that
// needs it, and not for what surely does not.
func TestRestartOnText(t *testing.T) {
	stamp := func(corefile string) string {
		text, err := yaml.Marshal(map[string]any{"corefile": map[string]string{"text": corefile}})
		if err != nil {
			t.Fatal(err)
		}
		ds, _ := render(t, string(text)).agent(t)
		return ds.Spec.Template.Annotations["namegate.io/restart-on"]
	}
	const base = ". {\n  forward . 192.0.2.53\n  cluster cluster.local 10.0.0.0/8\n}\n"
	before, start := stamp(base), parsed(t, base)
	for _, text := range []string{
		strings.Replace(base, "cluster c", "hold 3m\n  cluster c", 1),
		strings.Replace(base, "cluster c", "mark 0x80\n  cluster c", 1),
		strings.Replace(base, "cluster c", "failclosed\n  cluster c", 1),
		strings.Replace(base, "cluster c", "audit off\n  cluster c", 1),
		strings.Replace(base, "cluster c", "intercept 192.0.2.54\n  cluster c", 1),
		strings.Replace(base, "cluster c", "bind 192.0.2.55\n  cluster c", 1),
		strings.Replace(base, "192.0.2.53", "192.0.2.56", 1),
	} {
		if len(parsed(t, text).NeedsRestart(start)) == 0 {
			t.Errorf("needs no restart: %s", text)
		}
		if stamp(text) == before {
			t.Errorf("rolls no agent: %s", text)
		}
	}
	if stamp(strings.Replace(base, "10.0.0.0/8", "10.0.0.0/8 2001:db8::/32", 1)) != before {
		t.Error("a change that a running agent takes over rolls the agents")
	}
}
