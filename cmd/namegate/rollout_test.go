package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/enforcer/conntrack"
	"github.com/namegate/namegate/enforcer/ipset"
	"github.com/namegate/namegate/enforcer/iptables"
	"github.com/namegate/namegate/enforcer/link"
	"github.com/namegate/namegate/enforcer/nft"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy"
	"github.com/namegate/namegate/proxy/corefile"
)

// agentOnFakes is an agent whose kernel is in memory, and the part of that which can
// be made to refuse. It serves nowhere.
func agentOnFakes(t *testing.T) (*agent, *iptables.Fake) {
	t.Helper()
	config, err := corefile.Parse("Corefile", ". {\n forward . 198.51.100.53\n}")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	chains := iptables.NewFake()
	k := enforcer.Kernel{Sets: ipset.NewFake(time.Now), Chains: chains, Flows: conntrack.NewFake(), Links: link.NewFake(netip.MustParseAddr("192.0.2.1")),
		Tables: nft.New(knftables.NewFake(knftables.InetFamily, nft.TableName), knftables.NewFake(knftables.BridgeFamily, nft.TableName), config.Mark)}
	a := &agent{log: log, health: newHealth(time.Now)}
	a.config.Store(config)
	if a.enforce, err = enforcer.New(enforcerConfig(config), k, time.Now, log); err != nil {
		t.Fatal(err)
	}
	if _, err := a.enforce.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if a.proxy, err = proxy.New(proxy.Options{Config: config, Granter: a.enforce, Logger: log}); err != nil {
		t.Fatal(err)
	}
	a.network = &network{agent: a}
	a.network.last = new(enforcer.Network)
	*a.network.last = a.network.of(policy.Cluster{}) // nothing to serve anew
	a.nodes = &nodeAddresses{read: k.Links.Addrs, held: a.network.held, tell: a.proxy.SetCluster, log: log}
	a.rollout = newRollout(a)
	return a, chains
}

// TestEveryTryIsTimed: what the rollout compiles and brings into force stands in its
// figures, and what the kernel refuses as a failure, until it does not.
func TestEveryTryIsTimed(t *testing.T) {
	a, chains := agentOnFakes(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { a.rollout.run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	figures := func() map[string]string { return scraped(t, quietFacts(t), a.rollout.timing) }
	a.rollout.offer(state{})
	<-a.rollout.first
	got := figures()
	for sample, want := range map[string]string{"namegate_compile_seconds_count": "1", "namegate_apply_seconds_count": "1", "namegate_apply_failures_total": "0"} {
		if got[sample] != want {
			t.Errorf("%s is %s, want %s", sample, got[sample], want)
		}
	}
	chains.Fail(errors.New("the kernel is busy"))
	pod := policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: "web", UID: "u"}, IPs: []netip.Addr{netip.MustParseAddr("10.1.0.2")}}
	a.rollout.offer(state{input: policy.Input{Pods: []policy.Pod{pod}, Namespaces: map[string]map[string]string{"shop": {}}, Policies: selectAll()}})
	eventually(t, "the refusal is counted", func() bool { return figures()["namegate_apply_failures_total"] != "0" })
	if a.rollout.snapshot().Number != 1 {
		t.Error("what the kernel refused is in force")
	}
	chains.Fail(nil)
	eventually(t, "it is in force", func() bool { return a.rollout.snapshot().Number == 2 })
	got = figures()
	tries, failures := count(t, got["namegate_apply_seconds_count"]), count(t, got["namegate_apply_failures_total"])
	if tries != failures+2 || got["namegate_compile_seconds_count"] != "2" {
		t.Errorf("%d tries, %d failures, %s compiles", tries, failures, got["namegate_compile_seconds_count"])
	}
}

func count(t *testing.T, sample string) int {
	t.Helper()
	n, err := strconv.Atoi(sample)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// selectAll is a policy for every pod of the namespace shop.
func selectAll() []v1alpha1.FQDNNetworkPolicy {
	p := v1alpha1.FQDNNetworkPolicy{Spec: v1alpha1.FQDNNetworkPolicySpec{
		Egress: []v1alpha1.EgressRule{{Matches: []v1alpha1.Match{{Pattern: ptr("*.example.org")}}}},
	}}
	p.Namespace, p.Name = "shop", "all"
	return []v1alpha1.FQDNNetworkPolicy{p}
}

// eventually waits for what must come.
func eventually(t *testing.T, what string, there func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !there(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not come: %s", what)
		}
	}
}
