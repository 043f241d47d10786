package main

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/process"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
)

const (
	// grantsEach is how many grants a round makes.
	grantsEach = 1000
	// again is the peer: the same answers once more, without a new grant.
	again = "no-new-grant"
)

// granted is a node whose grants are measured, with its figures.
type granted struct {
	*node
	// question is a name that the node's rules allow, by round and number.
	question func(round, i int) string
	state    string
	// list lists the grants in the kernel, counts them, and tells how long it took.
	list                          func(*node) (int, time.Duration, error)
	listed                        int
	fresh, known, answer, listing figure.Series
}

// grants measures what a grant costs the agent, in an ipset and in an entry set of nftables,
// and how long a listing of all takes.
func (b *bench) grants() (err error) {
	all := []*granted{
		{node: &node{name: guarded}, state: "ipset", list: (*node).listIPSets, question: func(round, i int) string {
			return fmt.Sprintf("r%d-h%d.set-%d.bench.test.", round, i, i%portSets)
		}},
		{node: &node{name: ordered}, state: "entry sets, " + clusterRules, list: (*node).listEntrySets, question: func(round, i int) string {
			return fmt.Sprintf("r%d-h%d.registry-%d.test.", round, i, rulesEach+i%rulesEach)
		}},
	}
	for i, g := range all {
		b.Note("grants: building the node %s with %d pods", g.name, maxPods)
		n, err := b.newNode(g.name, clientNumber, false)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, n.remove()) }()
		all[i].node = n
		if err := b.guard(n, scattered); err != nil {
			return err
		}
		if err := n.choose(chosen(churnPods)); err != nil {
			return err
		}
	}
	rounds := min(b.rounds, 5)
	for _, measure := range []func(*granted, int) error{(*granted).measure, (*granted).measureListing} {
		for round := range rounds {
			for i := range all {
				if err := measure(all[(round+i)%len(all)], round); err != nil {
					return err
				}
			}
		}
	}
	for _, g := range all {
		for _, f := range []struct {
			name, unit string
			series     figure.Series
		}{{"grant.cpu_us", "us", g.fresh}, {"grant.answer_us", "us", g.answer}, {"grant.list_ms", "ms", g.listing}} {
			out := figure.Figure{Name: f.name, Value: f.series.Median(), Unit: f.unit, State: g.state}
			switch f.name {
			case "grant.list_ms":
				out.State += fmt.Sprintf(", %d grants", g.listed)
			case "grant.cpu_us":
				out = out.Against(again, g.known.Median())
			}
			b.Note("%s, %s: %.4g", f.name, out.State, out.Value)
			if err := b.Report(out, f.series.Others()); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure lets the client fill the agent's cache, and another pod ask for the same names: for
// the first time, which makes grants, and once more.
func (g *granted) measure(round int) error {
	other := chosen(churnPods)[0]
	if _, _, err := g.askAs(g.client, round); err != nil {
		return err
	}
	fresh, took, err := g.askAs(other, round)
	if err != nil {
		return err
	}
	known, _, err := g.askAs(other, round)
	if err != nil {
		return err
	}
	each := func(d time.Duration) figure.Reading {
		return figure.Reading{Value: d.Seconds() * 1e6 / grantsEach}
	}
	g.fresh, g.known, g.answer = append(g.fresh, each(fresh)), append(g.known, each(known)), append(g.answer, each(took))
	return nil
}

// measureListing lists the grants that all rounds made.
func (g *granted) measureListing(int) error {
	n, took, err := g.list(g.node)
	if err != nil {
		return err
	}
	// Some names share an address.
	if want := 2 * grantsEach * len(g.fresh) * 9 / 10; n < want {
		return fmt.Errorf("%s lists %d grants, want at least %d", g.name, n, want)
	}
	g.listed, g.listing = n, append(g.listing, figure.Reading{Value: took.Seconds() * 1e3})
	return nil
}

// askAs asks for the names of a round as a pod. It returns the agent's processor time and how
// long it took.
func (g *granted) askAs(pod, round int) (cpu, took time.Duration, err error) {
	c, err := g.asPod(pod)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	pid, err := process.Listener(g.agent.Socket())
	if err != nil {
		return 0, 0, err
	}
	before, err := process.CPU(pid)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	for i := range grantsEach {
		if err := exchange(c, g.question(round, i), dns.TypeA); err != nil {
			return 0, 0, err
		}
	}
	took = time.Since(began)
	after, err := process.CPU(pid)
	return after - before, took, err
}

// listIPSets lists all ipsets of a node.
func (n *node) listIPSets() (count int, took time.Duration, err error) {
	err = n.Node.Do(func() error {
		k, err := ipset.Open()
		if err != nil {
			return err
		}
		defer k.Close()
		began := time.Now()
		err = k.ListAll(func(_ ipset.Set, entries []ipset.Entry) { count += len(entries) })
		took = time.Since(began)
		return err
	})
	return count, took, err
}

var entrySetName = regexp.MustCompile(`set entries-(\S+)-4 `)

// listEntrySets lists all entry sets of a node.
func (n *node) listEntrySets() (count int, took time.Duration, err error) {
	text, err := n.Node.Run("nft", "-t", "list", "sets", "inet")
	if err != nil {
		return 0, 0, err
	}
	var names []string
	for _, m := range entrySetName.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	err = n.Node.Do(func() error {
		t, err := nft.Open(nft.Bits{})
		if err != nil {
			return err
		}
		began := time.Now()
		err = t.ListEntries(names, func(_ string, part []timed.Entry) { count += len(part) })
		took = time.Since(began)
		return err
	})
	return count, took, err
}
