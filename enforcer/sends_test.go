package enforcer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/policy"
)

// handed counts what is handed to the kernel at a time.
type handed struct {
	ipset.Interface
	times, ops, entries int
}

func (a *handed) Apply(ops []ipset.Op) {
	a.times++
	for _, op := range ops {
		a.ops++
		a.entries += len(op.Entries)
	}
	a.Interface.Apply(ops)
}

// An answer with 16 addresses that rules of five port sets open goes to the kernel at
// once, not address by address.
func TestAnAnswerIsOneWrite(t *testing.T) {
	w := newWorld(t)
	p := pod("web", "10.1.0.5 2001:db8:1::5", "allow")
	var rules []string
	for i := range 5 {
		rules = append(rules, fmt.Sprintf("tcp/%d www.example.org", 443+i))
	}
	w.apply([]policy.Pod{p}, pol("allow", rules...))
	count := &handed{Interface: w.e.k.Sets}
	w.e.k.Sets = count
	var answer []string
	for i := range 8 {
		answer = append(answer, fmt.Sprintf("192.0.2.%d 2001:db8::%d", i+1, i+1))
	}
	g := w.grants(w.snap, p.PodRef, "www.example.org", 60, strings.Join(answer, " "))
	if err := w.e.Grant(context.Background(), g); err != nil {
		t.Fatal(err)
	}
	if count.times != 1 || count.ops != 10 || count.entries != 80 {
		t.Errorf("%d writes of %d ops with %d entries, want 1 of 10 with 80", count.times, count.ops, count.entries)
	}
	if err := w.e.Grant(context.Background(), g); err != nil || count.times != 1 {
		t.Errorf("the same answer again, from the cache, is written again: %d writes, %v", count.times, err)
	}
}
