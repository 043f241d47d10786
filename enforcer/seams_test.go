package enforcer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/testkit/conntracktest"
	"github.com/namegate/namegate/testkit/iptablestest"
)

var errInjected = errors.New("the kernel is out of memory")

// seams stands between an enforcer and its node's fakes: it writes down every
// step, refuses the one it is told to, and keeps the rule that the kernel keeps
// between sets and chains: what a rule asks must be there.
type seams struct {
	w *world

	mu     sync.Mutex
	steps  int
	failAt int  // the number of the step that fails; 0: none
	late   bool // it fails after it was done
	log    []string
	failed string // the step that was refused, or failed after it was done
	before func(step string)
	refuse string // steps that begin with it fail; "": none
	after  func(n int, step string)
}

// forget starts a new count.
func (s *seams) forget(failAt int, late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps, s.failAt, s.late, s.log, s.failed = 0, failAt, late, nil, ""
}

func (s *seams) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// writes returns the steps that begin with a word.
func (s *seams) writes(word string) []string {
	return slices.DeleteFunc(s.written(), func(l string) bool { return !strings.HasPrefix(l, word) })
}

func (s *seams) step(what string, do func() error) error {
	s.mu.Lock()
	s.steps++
	refused := s.refuse != "" && strings.HasPrefix(what, s.refuse)
	fails, late, before, after, n := refused || s.steps == s.failAt, s.late && !refused, s.before, s.after, s.steps
	if !fails || late {
		s.log = append(s.log, what)
	}
	if fails {
		s.failed = what
	}
	s.mu.Unlock()
	if before != nil {
		before(what)
	}
	if fails && !late {
		return errInjected
	}
	err := do()
	if after != nil {
		after(n, what)
	}
	if err != nil {
		return err
	}
	if fails {
		return errInjected
	}
	return nil
}

type setSeam struct {
	*ipset.Fake
	s *seams
}

func (f setSeam) Ensure(set ipset.Set) error {
	return f.s.step("ensure "+set.Name, func() error { return f.Fake.Ensure(set) })
}

func (f setSeam) Destroy(name string) error {
	return f.s.step("destroy "+name, func() error {
		f.Refer(name, f.s.w.asked(name))
		return f.Fake.Destroy(name)
	})
}

// Apply lets each op be a step of its own.
func (f setSeam) Apply(ops []ipset.Op) {
	for i := range ops {
		op := &ops[i]
		if op.Err = nil; len(op.Entries) == 0 {
			continue
		}
		word, do := "add ", f.Fake.Add
		if op.Delete {
			word, do = "delete ", f.Fake.Delete
		}
		op.Err = f.s.step(word+op.Set+" "+texts(op.Entries), func() error { return do(op.Set, op.Entries...) })
	}
}

func (f setSeam) Each(name string, each func(ipset.Set, []ipset.Entry)) error {
	return f.s.step("list "+name, func() error { return f.Fake.Each(name, each) })
}

func texts(entries []ipset.Entry) string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Addr.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// allTables are those of other programs too.
var allTables = []string{"raw", "mangle", "nat", "filter", "security"}

// asked tells whether a rule asks a set.
func (w *world) asked(set string) bool {
	for _, f := range ipVersions {
		for _, table := range []string{"raw", "mangle", "nat", "filter", "security"} {
			if strings.Contains(w.chains.Dump(f, table), "--match-set "+set+" ") || w.otherBackend != nil && strings.Contains(w.otherBackend.Dump(f, table), "--match-set "+set+" ") {
				return true
			}
		}
	}
	return false
}

type chainSeam struct {
	*iptablestest.Fake
	s *seams
}

func (f chainSeam) Restore(ctx context.Context, tx *iptables.Transaction) error {
	if tx.Empty() {
		return nil
	}
	return f.s.step(fmt.Sprintf("restore %v %s", tx.Family, tx.Table), func() error {
		names := f.s.w.setNames()
		words := strings.Fields(tx.String())
		for i, w := range words {
			if w == "--match-set" && !slices.Contains(names, words[i+1]) {
				return fmt.Errorf("a rule asks the set %s, which is not there", words[i+1])
			}
		}
		return f.Fake.Restore(ctx, tx)
	})
}

func (f chainSeam) Save(ctx context.Context, fam iptables.Family, table string) (iptables.Chains, error) {
	var out iptables.Chains
	err := f.s.step("save "+table, func() (err error) { out, err = f.Fake.Save(ctx, fam, table); return err })
	return out, err
}

func (f chainSeam) SaveAll(ctx context.Context) (iptables.Everything, error) {
	var out iptables.Everything
	err := f.s.step("save all", func() (err error) { out, err = f.Fake.SaveAll(ctx); return err })
	return out, err
}

type tableSeam struct {
	*knftables.Fake
	s    *seams
	name string
}

func (f tableSeam) Run(ctx context.Context, tx *knftables.Transaction) error {
	return f.s.step("nft "+f.name, func() error { return f.Fake.Run(ctx, tx) })
}

type flowSeam struct {
	*conntracktest.Fake
	s *seams
}

func (f flowSeam) SetMark(flow conntrack.Flow, value, mask uint32) error {
	return f.s.step(fmt.Sprintf("mark %s %s %#x", flow.Src, flow.Dst, value), func() error { return f.Fake.SetMark(flow, value, mask) })
}
