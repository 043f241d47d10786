package audit

import (
	"bytes"
	"io"
	"sync"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestFilter: each option keeps exactly its lines, prepared or not.
func TestFilter(t *testing.T) {
	decision := func(namespace string, v, would Verdict) Record {
		return Record{Time: noon, Pod: policy.PodRef{Namespace: namespace, Name: "p"}, Name: policytest.Name("a.test"), Verdict: v, Would: would}
	}
	all := []Record{
		decision("shop", Allowed, None), decision("shop", Unmatched, None), decision("shop", Refused, Allowed),
		decision("bank", Blocked, None), decision("bank", Failed, None), decision("bank", Unmatched, Unmatched), decision("bank", Renewed, None), decision("bank", NameDenied, None),
	}
	flows := []*Flow{
		{Time: noon, Pod: policy.PodRef{Namespace: "shop", Name: "p"}, Verdict: Denied},
		{Time: noon, Pod: policy.PodRef{Namespace: "bank", Name: "p"}, Verdict: WouldDeny},
		{Time: noon, Pod: policy.PodRef{Namespace: "bank", Name: "p"}, Verdict: WouldAllow},
	}
	for _, c := range []struct {
		filter Filter
		want   string // the verdicts of the lines that are written
	}{
		{Filter{}, "allowed unmatched refused blocked failed unmatched renewed denied denied would-deny would-allow"},
		{Filter{Sample: 1}, "allowed unmatched refused blocked failed unmatched renewed denied denied would-deny would-allow"},
		{Filter{Verdicts: Verdicts()}, "allowed unmatched refused blocked failed unmatched renewed denied denied would-deny would-allow"},
		{Filter{Verdicts: []string{"unmatched"}}, "unmatched unmatched"},
		{Filter{Verdicts: []string{"denied", "failed"}}, "failed denied denied"},
		{Filter{Verdicts: []string{"renewed"}}, "renewed"},
		{Filter{Verdicts: []string{"would-deny"}}, "would-deny"},
		{Filter{Verdicts: []string{"would-allow"}}, "would-allow"},
		{Filter{Verdicts: []string{"nonsense", ""}}, ""},
		{Filter{Namespaces: []string{"bank"}}, "blocked failed unmatched renewed denied would-deny would-allow"},
		{Filter{Namespaces: []string{"bank", "shop"}}, "allowed unmatched refused blocked failed unmatched renewed denied denied would-deny would-allow"},
		{Filter{Namespaces: []string{"ban"}}, ""},
		{Filter{Namespaces: []string{"shop"}, Verdicts: []string{"unmatched", "would-deny", "denied"}}, "unmatched denied"},
		{Filter{Sample: 2}, "allowed unmatched refused blocked failed unmatched renewed denied denied would-deny would-allow"}, // the first of two
	} {
		for _, prepared := range []bool{false, true} {
			var out bytes.Buffer
			l := To(&out, Options{})
			l.Filter(c.filter)
			for _, r := range all {
				if prepared {
					l.Repeat(l.Prepare(&r), r.Time, r.Address, r.Latency)
				} else {
					l.Write(r)
				}
			}
			for _, f := range flows {
				l.WriteFlow(f)
			}
			closeLog(t, l)
			var got []byte
			lines := 0
			for text := range bytes.Lines(out.Bytes()) {
				_, word, _ := bytes.Cut(text, []byte(`"verdict":"`))
				word, _, _ = bytes.Cut(word, []byte(`"`))
				got = append(append(got, word...), ' ')
				lines++
			}
			diff.Equal(t, c.want, string(bytes.TrimSpace(got)), c.filter, "prepared", prepared)
			if n := int(l.Filtered()); n != len(all)+len(flows)-lines || l.Dropped() != 0 {
				t.Errorf("%+v: %d filtered, %d written", c.filter, n, lines)
			}
		}
	}
}

// TestSample: one of N allowed decisions is kept, from any number of goroutines, and all
// other lines.
func TestSample(t *testing.T) {
	for _, n := range []int{1, 2, 7, 100} {
		l := To(io.Discard, Options{Filter: Filter{Sample: n}, Queue: 1 << 30})
		plain := example(t)
		differs, denied, same := example(t), example(t), example(t)
		differs.Would, denied.Verdict, same.Would = Unmatched, Unmatched, Allowed
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for i := range 700 {
					if r := []Record{plain, plain, same}[i%3]; i%3 == 1 {
						l.Repeat(l.Prepare(&r), noon, r.Address, 0)
					} else {
						l.Write(r)
					}
					if i%10 == 0 {
						l.Repeat(l.Prepare(&differs), noon, differs.Address, 0)
						l.Write(denied)
						l.WriteFlow(exampleFlow(t))
					}
				}
			})
		}
		wg.Wait()
		closeLog(t, l)
		diff.Equal(t, 4*3*70+(4*700+n-1)/n, int(l.Written()), "one of", n, "lines")
	}
}

// TestFilteredCostsNothing: filtered lines are not encoded and take no room.
func TestFilteredCostsNothing(t *testing.T) {
	g := newGated()
	l := To(g, Options{Queue: 1, Filter: Filter{Namespaces: []string{"bank"}}})
	r := example(t)
	r.Matches = []*policy.Match{nil} // encoding it would panic
	for range 100 {
		l.Write(r)
	}
	diff.Equal(t, 0, testing.AllocsPerRun(100, func() { l.Write(r) }), "allocations")
	if l.Dropped() != 0 || l.Filtered() < 200 || len(g.wrote) != 0 {
		t.Errorf("dropped %d, filtered %d", l.Dropped(), l.Filtered())
	}
	close(g.open)
	closeLog(t, l)
}
