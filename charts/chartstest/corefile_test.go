package chartstest

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// config is the configuration that values make, as the agent reads it.
func config(t *testing.T, text string) *corefile.Config {
	t.Helper()
	data := the[*corev1.ConfigMap](t, render(t, text).objects, "ConfigMap/namegate").Data
	diff.MustEqual(t, 1, len(data), "files")
	c, err := corefile.Parse("Corefile", data["Corefile"])
	if err != nil {
		t.Fatalf("%v in\n%s", err, data["Corefile"])
	}
	return c
}

func parsed(t *testing.T, text string) *corefile.Config {
	t.Helper()
	c, err := corefile.Parse("Corefile", text)
	fatal.If(t, err)
	return c
}

// same compares two configurations, all fields.
func same(t *testing.T, what string, want, got *corefile.Config) {
	t.Helper()
	diff.Error(t, want, got, what)
}

// TestCorefile: the agent reads from the chart's values what somebody would have
// written by hand.
func TestCorefile(t *testing.T) {
	same(t, "as it comes", parsed(t, `. {
		forward . kube-dns.kube-system
		cache 30s {
			negative_ttl 5s
			serve_stale 1h
		}
		cluster cluster.local
		audit stdout
	}`), config(t, ""))

	same(t, "everything", parsed(t, `. {
		forward . kube-dns.kube-system 192.0.2.53 [2001:db8::53]:5353 {
			policy sequential
			timeout 800ms
			deadline 3s
			max_fails 0
			health_check 500ms
			max_concurrent 1000
			force_tcp
		}
		cache 45s {
			min_ttl 2s
			negative_ttl 0s
			prefetch 20 2m 25%
			serve_stale 3h
			entries 1000000
			size 64MiB
		}
		ttl 3s 20m
		follow off
		bind 169.254.25.10
		intercept 169.254.20.10
		cluster corp.test 10.244.0.0/16 10.96.0.0/12 2001:db8:42::/56
		failclosed
		failsafe out 192.0.2.0/24 TCP 443
		failsafe nodes 2001:db8::7
		search corp.test
		rebind allow ingress.test 10.96.7.0/24
		nat64 2001:db8:64::/96
		grant timeout 400ms
		hold 5m
		dataplane nftables
		mark 0x80
		audit /var/log/namegate/audit.log {
			verdict denied would-deny failed
			namespace shop kube-system
			sample 100
		}
		limits {
			queries 2048
			queries_per_pod 128
			rate_per_pod 500
			burst_per_pod 100
			connections 512
			connections_per_pod 32
			addresses 32
		}
		servernames {
			port 8443
			connections 2048
			connections_per_pod 128
			hellos 512
			hellos_per_pod 32
			grace 2m
		}
	}
	corp.test partner.test {
		forward . 192.0.2.54
		cache 45s {
			min_ttl 2s
			negative_ttl 0s
			prefetch 20 2m 25%
			serve_stale 3h
		}
	}
	special.test {
		forward . 198.51.100.53:5300 {
			policy round_robin
		}
		cache 1h30m {
			min_ttl 1m
			negative_ttl 1m
		}
	}`), config(t, everything))

	if c := config(t, "corefile: {mark: 0x100}"); c.Mark != 0x100 {
		t.Errorf("a mark that YAML reads as a number became %#x", c.Mark)
	}
	if c := config(t, "corefile: {mark: 0x100 0x200}"); c.Mark != 0x100 || c.Candidate != 0x200 {
		t.Errorf("two bits became %#x and %#x", c.Mark, c.Candidate)
	}
	if c := config(t, "corefile: {extra: \"hold 3m\\nnat64 2001:db8:64::/96\"}"); c.Hold != 3*time.Minute || len(c.NAT64) != 1 {
		t.Errorf("the further lines became %+v", c)
	}
}

// TestCorefileCache: each value of a cache is written, empty and missing ones are the
// agent's default, and a zone's own values replace the root zone's.
func TestCorefileCache(t *testing.T) {
	const own = ", zones: [{names: [corp.test], forward: {to: [192.0.2.54]}, cache: "
	for _, c := range []struct{ values, root, corp, more string }{
		{values: "cache: {enabled: false}"},
		{values: "cache: null"},
		{values: "cache: {maxTTL: 1h}", root: "cache 1h {\nnegative_ttl 5s\nserve_stale 1h\n}"},
		{values: "cache: {maxTTL: '', negativeTTL: '', minTTL: '', serveStale: ''}", root: "cache"},
		{values: "cache: {maxTTL: null, negativeTTL: null, serveStale: null, entries: null, size: null}", root: "cache"},
		{values: "cache: {maxTTL: 1m, minTTL: 1m}", root: "cache 1m {\nmin_ttl 1m\nnegative_ttl 5s\nserve_stale 1h\n}"},
		{values: "cache: {negativeTTL: 0s}", root: "cache 30s {\nnegative_ttl 0s\nserve_stale 1h\n}"},
		{values: "cache: {serveStale: 24h}", root: "cache 30s {\nnegative_ttl 5s\nserve_stale 24h\n}"},
		{values: "cache: {prefetch: {amount: 5}}", root: "cache 30s {\nnegative_ttl 5s\nprefetch 5\nserve_stale 1h\n}"},
		{values: "cache: {prefetch: {amount: 5, percent: 50}}", root: "cache 30s {\nnegative_ttl 5s\nprefetch 5 1m 50%\nserve_stale 1h\n}"},
		{values: "cache: {entries: 16, size: 1GiB}", root: "cache 30s {\nnegative_ttl 5s\nserve_stale 1h\nentries 16\nsize 1GiB\n}"},
		{values: "follow: true" + own + "{enabled: false}}]", root: "cache 30s {\nnegative_ttl 5s\nserve_stale 1h\n}", corp: "none"},
		{values: "follow: false" + own + "{negativeTTL: 1m}}]", root: "cache 30s {\nnegative_ttl 5s\nserve_stale 1h\n}", corp: "cache 30s {\nnegative_ttl 1m\nserve_stale 1h\n}", more: "follow off"},
		{values: "cache: {enabled: false}" + own + "{enabled: true, maxTTL: 1h}}]", corp: "cache 1h {\nnegative_ttl 5s\nserve_stale 1h\n}"},
		{values: "cache: {prefetch: {amount: 9, within: 2m}}" + own + "{prefetch: {amount: 3}}}]", root: "cache 30s {\nnegative_ttl 5s\nprefetch 9 2m\nserve_stale 1h\n}",
			corp: "cache 30s {\nnegative_ttl 5s\nprefetch 3\nserve_stale 1h\n}"},
		{values: "cache: {enabled: false}, ttl: {minTTL: 5s}", more: "ttl 5 2147483647"},
		{values: "cache: {enabled: false}, ttl: {maxTTL: 1h}", more: "ttl 0 1h"},
		{values: "cache: {enabled: false}, ttl: {maxTTL: 2147483647s}, follow: null", more: "ttl 0 2147483647"},
	} {
		want := ". {\nforward . kube-dns.kube-system\ncluster cluster.local\n" + c.root + "\n" + c.more + "\n}\n"
		if c.corp != "" {
			want += "corp.test {\nforward . 192.0.2.54\n" + strings.TrimPrefix(c.corp, "none") + "\n}\n"
		}
		same(t, c.values, parsed(t, want), config(t, "corefile: {"+c.values+"}"))
	}
}

// TestCacheInBounds: the chart accepts and refuses the same values as the agent.
func TestCacheInBounds(t *testing.T) {
	for _, c := range []struct{ value, line, in, out string }{
		{"cache: {maxTTL: %}", "cache %", "1s 168h 10080m 604800s", "0s 169h 168h1s"},
		{"cache: {maxTTL: 168h, minTTL: %}", "cache 168h {\nmin_ttl %\n}", "0s 1h 60m", "1h1s 61m 2h"},
		{"cache: {negativeTTL: %}", "cache 30s {\nnegative_ttl %\n}", "0s 3h", "3h1s 4h"},
		{"cache: {serveStale: %}", "cache 30s {\nserve_stale %\n}", "1s 24h", "0s 24h1s"},
		{"cache: {prefetch: {amount: 1, within: %}}", "cache 30s {\nprefetch 1 %\n}", "1s 24h", "0s 25h"},
		{"cache: {prefetch: {amount: 1, percent: %}}", "cache 30s {\nprefetch 1 1m %%\n}", "1 90", "0 91"},
		{"cache: {prefetch: {amount: %}}", "cache 30s {\nprefetch %\n}", "0 1000000", "-1 1000001"},
		{"cache: {entries: %}", "cache 30s {\nentries %\n}", "16 1000000", "15 1000001"},
		{"cache: {size: %}", "cache 30s {\nsize %\n}", "1MiB 999MiB 1024MiB 1GiB", "0MiB 1025MiB 2GiB"},
		{"cache: {maxTTL: 10s, minTTL: %}", "cache 10s {\nmin_ttl %\n}", "10s", "11s"},
		{"ttl: {minTTL: %}", "ttl % 2147483647", "0s 1h", "1h1s"},
		{"ttl: {minTTL: 1m, maxTTL: %}", "ttl 1m %", "1m 2147483647s", "59s 2147483648s"},
		{"forward: {maxConcurrent: %}", "forward . 192.0.2.53 {\nmax_concurrent %\n}", "0 1048576", "-1 1048577"},
	} {
		for i, list := range []string{c.in, c.out} {
			for v := range strings.FieldsSeq(list) {
				line := strings.ReplaceAll(strings.ReplaceAll(c.line, "%%", v+"\x00"), "%", v)
				line = strings.ReplaceAll(line, "\x00", "%")
				if !strings.HasPrefix(line, "forward") {
					line = "forward . 192.0.2.53\n" + line
				}
				_, agent := corefile.Parse("Corefile", ". {\n"+line+"\n}")
				_, chart := install(t, "namegate", "corefile: {"+strings.ReplaceAll(c.value, "%", v)+"}")
				if bad := i == 1; (agent != nil) != bad || (chart != nil) != bad {
					t.Errorf("%s of %s\n  the agent says: %v\n  the chart says: %v", v, c.value, agent, chart)
				}
			}
		}
	}
}

// TestCompleteCorefile: a text of one's own is taken as it is.
func TestCompleteCorefile(t *testing.T) {
	const text = "# ours\n. {\n    forward . 192.0.2.53\n\n    hold 2m\n}"
	r := render(t, "cluster: {domain: not.used}\ncorefile:\n  mark: '0x80'\n  text: |\n    # ours\n    . {\n        forward . 192.0.2.53\n\n        hold 2m\n    }\n")
	diff.Equal(t, text+"\n", the[*corev1.ConfigMap](t, r.objects, "ConfigMap/namegate").Data["Corefile"])
}

// TestRestartOn: agents are rolled exactly for directives that a running one does not
// apply, which the parser of the Corefile knows.
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
		"corefile: {hold: 3m}", "corefile: {dataplane: iptables}", "corefile: {mark: '0x80'}", "corefile: {failclosed: true}", "corefile: {audit: 'off'}",
		"corefile: {bind: [169.254.25.10]}", "corefile: {intercept: [169.254.20.10]}", "corefile: {search: [corp.test]}",
		"corefile: {forward: {to: [192.0.2.53]}}", "corefile: {forward: {to: ['192.0.2.53:5353', kube-dns.kube-system]}}", "corefile: {forward: {to: [other.kube-system]}}",
		"corefile: {forward: {policy: sequential}}", "corefile: {limits: {queries: 1000}}", "corefile: {serverNames: {hellos: 99}}", "corefile: {grantTimeout: 1s}",
		"corefile: {zones: [{names: [corp.test], forward: {to: [192.0.2.53]}}]}", "cluster: {ranges: [10.0.0.0/8]}", "corefile: {extra: 'nat64 2001:db8:64::/96'}", "corefile: {extra: 'hold 3m'}",
		"corefile: {forward: {to: ['[2001:db8::53]:5353', kube-dns.kube-system]}}", "corefile: {forward: {to: ['[2001:db8::53]']}}", "corefile: {forward: {to: ['2001:db8::53', '[2001:db8::54]:53']}}",
		"corefile: {cache: {enabled: false}}", "corefile: {cache: {size: 64MiB}}", "corefile: {ttl: {minTTL: 5s}}", "corefile: {follow: false}", "corefile: {auditFilter: {sample: 10}}", "corefile: {auditFilter: {namespaces: [shop]}}", "corefile: {auditFilter: {verdicts: [denied]}}", "corefile: {forward: {healthCheck: 1s, maxConcurrent: 9, forceTCP: true}}",
	} {
		needs := config(t, text).NeedsRestart(start)
		diff.Equal(t, len(needs) > 0, stamp(text) != before, text, "rolls the agents; a restart is needed for", needs)
	}
}

// TestRestartOnFurtherLines: a block of `extra` counts with all its lines.
func TestRestartOnFurtherLines(t *testing.T) {
	of := func(hellos string) (string, []string) {
		text := "corefile: {extra: \"servernames {\\n  hellos " + hellos + "\\n}\"}"
		ds, _ := render(t, text).agent(t)
		return ds.Spec.Template.Annotations["namegate.io/restart-on"], config(t, text).NeedsRestart(config(t, ""))
	}
	before, needs := of("99")
	if after, _ := of("98"); before == after || len(needs) == 0 {
		t.Errorf("a changed block rolls no agent; a restart is needed for %v", needs)
	}
}

// TestRestartOnText: of a text of one's own the agents are rolled for all that
// needs it, and not for what surely does not.
func TestRestartOnText(t *testing.T) {
	stamp := func(corefile string) string {
		text, err := yaml.Marshal(map[string]any{"corefile": map[string]string{"text": corefile}})
		fatal.If(t, err)
		ds, _ := render(t, string(text)).agent(t)
		return ds.Spec.Template.Annotations["namegate.io/restart-on"]
	}
	t.Setenv("AUDIT_FILE", "/var/log/audit.log")
	t.Setenv("AUDIT_SIZE", "1GiB")
	const base = ". {\n  forward . 192.0.2.53\n  cluster cluster.local 10.0.0.0/8\n  cache {\n    size 64MiB\n  }\n  limits {\n    queries 1000\n  }\n}\n"
	with := func(audit string) string { return strings.Replace(base, "cache {", audit+"\n  cache {", 1) }
	for _, c := range []struct{ before, old, new string }{
		{base, "cluster c", "hold 3m\n  cluster c"},
		{base, "cluster c", "dataplane nftables\n  cluster c"},
		{base, "cluster c", "mark 0x80\n  cluster c"},
		{base, "cluster c", "failclosed\n  cluster c"},
		{base, "cluster c", "audit off\n  cluster c"},
		{base, "cluster c", "intercept 192.0.2.54\n  cluster c"},
		{base, "cluster c", "bind 192.0.2.55\n  cluster c"},
		{base, "192.0.2.53", "192.0.2.56"},
		{with("audit /a.log {\n    size 1GiB\n    keep 3\n  }"), "1GiB", "2GiB"},
		{with("audit /a.log {\n    size 1GiB # }\n    # it's {\n    keep 3\n  }"), "keep 3", "keep 4"},
		{with("audit {$AUDIT_FILE} {\n    size {$AUDIT_SIZE}\n    keep 3\n  }"), "keep 3", "keep 4"},
		{with("audit {%AUDIT_FILE%} { # here\n    size {%AUDIT_SIZE%}\n    keep 3\n  }"), "keep 3", "keep 4"},
		{with("audit /a.log"), "/a.log", "/b.log"},
		{with("servernames {\n    # {\n    port 8443\n    hellos 99\n  }"), "99", "98"},
		{with("audit /a.log {\n    sample 100\n    keep 3\n  }"), "keep 3", "keep 4"},
		{with("audit stdout {\n    verdict denied\n  }"), "stdout", "/a.log"},
	} {
		after := strings.Replace(c.before, c.old, c.new, 1)
		if len(parsed(t, after).NeedsRestart(parsed(t, c.before))) == 0 {
			t.Errorf("needs no restart: %s", after)
		}
		if stamp(after) == stamp(c.before) {
			t.Errorf("rolls no agent: %s", after)
		}
	}
	for _, audit := range []string{"audit stdout", "audit /a.log {\n    size 1GiB\n  }", "audit {$AUDIT_FILE}", "audit {%AUDIT_FILE%} {\n    size {%AUDIT_SIZE%} # }\n  }", "audit /a.log { # of {$NODE}\n  }",
		"audit stdout {\n    verdict denied\n    sample 100\n  }", "audit /a.log {\n    namespace shop # and no other\n    size 1GiB\n    sample 100\n  }"} {
		before := with(audit)
		after := strings.NewReplacer("10.0.0.0/8", "10.0.0.0/8 2001:db8::/32", "64MiB", "128MiB", "queries 1000", "queries 2000", "sample 100", "sample 10", "verdict denied", "verdict denied failed", "namespace shop #", "namespace bank #").Replace(before)
		if needs := parsed(t, after).NeedsRestart(parsed(t, before)); len(needs) > 0 {
			t.Errorf("%v need a restart: %s", needs, after)
		}
		diff.Equal(t, stamp(before), stamp(after), "a change that a running agent takes over rolls the agents", after)
	}
}
