package main

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// tour walks through the promises, one step after another.
type tour struct {
	*stage
	*printer
	ctx context.Context
}

// quick is the most that "in milliseconds" may mean: a rejection is an answer of
// the node itself, while a busy machine may let it wait.
const quick = 2 * time.Second

func (t *tour) walk() error {
	steps := []func(){t.listed, t.unlisted, t.raw, t.neighbour, t.spoofed, t.unselected, t.expiry, t.agentGone, t.logged}
	if t.nftAlone() {
		steps = append([]func(){t.withoutIPTables}, steps...)
	}
	for _, step := range steps {
		if t.ctx.Err() != nil {
			return errInterrupted
		}
		step()
	}
	return nil
}

// resolve is one check that asks and wants an address.
func (t *tour) resolve(pod, name string, qtype uint16, want, why string) bool {
	addrs, took, err := ask(t.Pod(pod), name, qtype, askLimit)
	said := fmt.Sprint(err)
	good := err == nil && len(addrs) == 1 && addrs[0].String() == want
	if err == nil {
		said = fmt.Sprintf("%s after %s", join(addrs), brief(took))
	}
	option := ""
	if qtype == dns.TypeAAAA {
		option = " AAAA"
	}
	return t.check(pod, "dig "+name+option, why, said, good)
}

// page is one check that gets a page on a new connection.
func (t *tour) page(pod, to, host, why string) bool {
	v := open(t.Pod(pod), netip.Addr{}, to, host)
	defer v.close()
	text, err := v.get()
	said := v.String()
	if v.err == nil {
		said += "; " + pageOf(text, err)
	}
	return t.check(pod, curl(host, to), why, said, err == nil)
}

// denied is one check that wants a rejection in milliseconds.
func (t *tour) denied(pod, to, host, why string) bool {
	v := open(t.Pod(pod), netip.Addr{}, to, host)
	defer v.close()
	return t.check(pod, curl(host, to), why, v.String(), v.rejected() && v.took < quick)
}

// withoutIPTables shows what the agent finds on its node, and what it makes of that.
func (t *tour) withoutIPTables() {
	t.step("A node without iptables and ipset: programs are hidden, and the kernel answers as without the modules")
	out, err := t.agent.Run("iptables", "-S")
	t.check("node", "iptables -S", "there is no such program", out, err != nil)
	if at, err := exec.LookPath("ipset"); err == nil {
		out, err := t.agent.Run(at, "list")
		t.check("node", at+" list", "refused by the kernel", out, err != nil)
	}
	is, err := t.agent.Status()
	t.check("node", "namegate status", "the agent chose the dataplane nftables", fmt.Sprintf("dataplane %s: %s", is.Dataplane.Name, is.Dataplane.Reason),
		err == nil && is.Dataplane.Name == "nftables")
}

func (t *tour) listed() {
	t.step("A name that a policy allows")
	t.resolve(client, listedName, dns.TypeA, listed4, "its address, opened in the kernel before the answer left")
	t.page(client, listed4, listedName, "the page")
	t.resolve(client, listedName, dns.TypeAAAA, listed6, "the same over IPv6")
	t.page(client, listed6, listedName, "the page")
}

func (t *tour) unlisted() {
	t.step("A name that no policy lists")
	t.resolve(client, unlistedName, dns.TypeA, unlisted4, "its address, which is not opened")
	t.denied(client, unlisted4, unlistedName, "rejected in milliseconds, no timeout")
}

func (t *tour) raw() {
	t.step("A raw IP address, without any name")
	t.denied(client, raw4, raw4, "rejected in milliseconds")
}

func (t *tour) neighbour() {
	t.step("The neighbour and the client's address: the same policy, the same node")
	t.denied(neighbour, listed4, listedName, "rejected: the client asked for it, the neighbour did not")
	t.resolve(neighbour, listedName, dns.TypeA, listed4, "its own answer, which opens the address for it too")
	t.page(neighbour, listed4, listedName, "the page")
}

func (t *tour) spoofed() {
	t.step("The neighbour with the client's source address")
	t.resolve(client, docsName, dns.TypeA, docs4, "its address, open for the client")
	sniffer, err := t.World.Sniff("eth0")
	if err != nil {
		t.check("world", "tcpdump -ni eth0", "it starts", err.Error(), false)
		return
	}
	defer sniffer.Close()
	to := netip.MustParseAddr(docs4)
	said, good := t.forge(docs4)
	settled := sniffer.Settle(t.Node)
	seen := sniffer.Saw(to)
	t.check(neighbour, fmt.Sprintf("ip addr add %s/32 dev lo; curl --interface %[1]s http://%s/", t.Pod(client).Addr4, docs4),
		"no answer, and no packet reaches the world", fmt.Sprintf("%s; the world saw %d packets", said, seen), good && settled == nil && seen == 0)
	v := open(t.Pod(client), netip.Addr{}, docs4, docsName)
	v.close()
	settled = sniffer.Settle(t.Node)
	seen = sniffer.Saw(to)
	t.check(client, curl(docsName, docs4), "it connects, and the world sees that",
		fmt.Sprintf("%s; the world saw %d packets", v, seen), v.err == nil && settled == nil && seen > 0)
}

// forge connects from the neighbour with the client's source address and tells
// what became of it; good is that it did not connect.
func (t *tour) forge(to string) (said string, good bool) {
	p, source := t.Pod(neighbour), t.Pod(client).Addr4
	if err := p.IP("addr", "add", source.String()+"/32", "dev", "lo"); err != nil {
		return err.Error(), false
	}
	v := open(p, source, to, docsName)
	v.close()
	if err := p.IP("addr", "del", source.String()+"/32", "dev", "lo"); err != nil {
		return err.Error(), false
	}
	return v.String(), v.err != nil
}

func (t *tour) unselected() {
	t.step("A pod that no policy selects")
	t.page(visitor, raw4, raw4, "the page: it is left alone")
}

// feedLimit is how long the feed's address may stay open: a TTL of 2 s and a
// grace of 1 s, and something for a busy machine.
const feedLimit = time.Minute

func (t *tour) expiry() {
	t.step("An address after its TTL (2 s, and 1 s of grace)")
	if !t.resolve(client, feedName, dns.TypeA, feed4, "its address, open for 3 s") {
		return
	}
	begun := time.Now()
	old := open(t.Pod(client), netip.Addr{}, feed4, feedName)
	defer old.close()
	text, err := old.get()
	if !t.check(client, curl(feedName, feed4)+"  (and keep the connection)", "the page", pageOf(text, err), err == nil) {
		return
	}
	last := t.until(begun)
	open := time.Since(begun)
	said := fmt.Sprintf("new ones connected for %s, then: %s", brief(open), last)
	t.check(client, curl(feedName, feed4)+"  (again and again, new connections)", "rejected when the time is over",
		said, last.rejected() && open > 2*time.Second)
	text, err = old.get()
	t.check(client, "the next request on the connection of before", "the page: what stands goes on", pageOf(text, err), err == nil)
}

// until opens connections to the feed until one fails, and returns that one.
func (t *tour) until(begun time.Time) *visit {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		v := open(t.Pod(client), netip.Addr{}, feed4, feedName)
		v.close()
		if v.err != nil || time.Since(begun) > feedLimit || t.ctx.Err() != nil {
			return v
		}
		<-tick.C
	}
}

func (t *tour) agentGone() {
	t.step("The agent is killed, and comes back")
	if err := t.agent.Stop(syscall.SIGKILL); err != nil {
		t.check("node", "kill -9 AGENT", "it is gone", err.Error(), false)
		return
	}
	begun := time.Now()
	t.page(client, listed4, listedName, "the page: what was open stays open")
	t.denied(client, raw4, raw4, "rejected: what was closed stays closed")
	said, good := t.answered(begun)
	t.check(client, "dig "+listedName+"  (until it is answered)", "the resolver answers it, seconds after the kill", said, good)
	err := t.agent.Start()
	said = "it serves again"
	if err != nil {
		said = err.Error()
	}
	t.check("node", "namegate agent …", "it takes over what is in the kernel", said, err == nil)
	t.resolve(client, listedName, dns.TypeA, listed4, "answered by the agent again")
	t.page(client, listed4, listedName, "the page")
}

// answered asks again and again until somebody answers, and tells how long
// after begun that was.
func (t *tour) answered(begun time.Time) (said string, good bool) {
	for time.Since(begun) < askLimit && t.ctx.Err() == nil {
		addrs, _, err := ask(t.Pod(client), listedName, dns.TypeA, patience)
		if err == nil {
			after := time.Since(begun)
			return fmt.Sprintf("%s, %s after the kill", join(addrs), brief(after)), true
		}
	}
	return "no answer within " + brief(askLimit), false
}

func (t *tour) logged() {
	t.step("The audit log: who asked what, and what decided")
	lines, err := t.waitForAudit()
	if err != nil {
		t.check("node", "cat audit.log", "one line for each decision", err.Error(), false)
		return
	}
	for _, l := range lines {
		t.note(describe(l))
	}
	said := "all there"
	if missing := missingOf(lines); len(missing) > 0 {
		said = "missing: " + strings.Join(missing, "; ")
	}
	t.check("node", "cat audit.log", "the decisions above, each with the policy that made it", said, said == "all there")
}

func join(addrs []netip.Addr) string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = a.String()
	}
	if len(out) == 0 {
		return "no address"
	}
	return strings.Join(out, " ")
}

func curl(host, to string) string {
	if host == to {
		return "curl http://" + to + "/"
	}
	return "curl http://" + host + "/  (" + to + ")"
}

func pageOf(text string, err error) string {
	if err != nil {
		return "no page: " + err.Error()
	}
	return "“" + text + "”"
}
