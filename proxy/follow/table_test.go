package follow

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// leadBy is a lead by a name, of rules that accept; "!name" is of rules that deny, "^name" by an
// alias.
func leadBy(name string, until time.Duration) Lead {
	l := policy.Lead{Alias: name[0] == '^', Lasting: name[0] == '!' || name[0] == '^'}
	l.Name = policytest.Name(strings.TrimLeft(name, "!^"))
	return Lead{l, until}
}

// ledBy are the names that lead a pod to a name at a moment.
func (f *Table) ledBy(p policy.PodRef, n fqdn.Name, now time.Duration) (all []string) {
	via, aliases, _ := f.Find(p, n).At(now)
	for _, n := range via {
		all = append(all, n.String())
	}
	for _, n := range aliases {
		all = append(all, "^"+n.String())
	}
	return all
}

func TestFollowedNamesAreBoundedPerPod(t *testing.T) {
	var f Table
	pod, other := policy.PodRef{Name: "a"}, policy.PodRef{Name: "b"}
	for i := range MaxNames {
		if !f.Add(pod, policytest.Name(strconv.Itoa(i)+".test"), leadBy("www.example.org", time.Minute+time.Duration(i)), 0) {
			t.Fatalf("%d is too many", i)
		}
	}
	late, first := policytest.Name("late.test"), policytest.Name("0.a.test")
	if f.Add(pod, late, leadBy("www.example.org", time.Hour), 0) || len(f.pods[pod].names) != MaxNames {
		t.Error("one more than the bound")
	}
	epoch := f.Epoch(pod).Load()
	if !f.Add(pod, first, leadBy("www.example.org", time.Hour), 0) || f.Find(pod, policytest.Name("255.test")) != nil || f.Epoch(pod).Load() == epoch {
		t.Error("the last name in order does not make room")
	}
	if !f.Add(pod, late, leadBy("!denied.test", time.Hour), 0) || f.Find(pod, policytest.Name("254.test")) != nil {
		t.Error("a denied name has no room")
	}
	if !f.Add(pod, policytest.Name("7.test"), leadBy("www.example.org", time.Hour), 0) || !f.Add(other, late, leadBy("www.example.org", time.Hour), 0) {
		t.Error("a known name is not prolonged, or another pod has no room")
	}
	if !f.Add(pod, policytest.Name("last-of-all.test"), leadBy("www.example.org", time.Hour), time.Minute+9) || len(f.pods[pod].names) != MaxNames-8 {
		t.Errorf("those that are over do not make room: %d", len(f.pods[pod].names))
	}
}

// TestDeniedLeadsAreKept: where all room is of names that rules deny, one more of them is not
// taken, which the caller is told.
func TestDeniedLeadsAreKept(t *testing.T) {
	var f Table
	pod := policy.PodRef{Name: "a"}
	for i := range MaxNames {
		f.Add(pod, policytest.Name("z"+strconv.Itoa(i)+".test"), leadBy("!denied.test", time.Hour), 0)
	}
	for _, by := range []string{"!denied.test", "www.example.org", "^alias.test"} {
		if f.Add(pod, policytest.Name("a.test"), leadBy(by, time.Hour), 0) || len(f.pods[pod].names) != MaxNames {
			t.Errorf("%s displaces a denied name", by)
		}
	}
}

// TestAllLeadsCount until their time is over, in every order of arrival, and the first in order
// where there are too many.
func TestAllLeadsCount(t *testing.T) {
	pod, n := policy.PodRef{Name: "a"}, policytest.Name("host.test")
	all := []string{"!c.test", "a.test", "b.test", "^a.test", "d.test"}
	random := rand.New(rand.NewPCG(16, 7))
	for range 100 {
		var f Table
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for i, by := range all {
			if !f.Add(pod, n, leadBy(by, time.Duration(10+len(by))), 0) || f.Epoch(pod).Load() != uint64(i+1) {
				t.Fatalf("%v: %s is not added", all, by)
			}
		}
		f.Add(pod, n, leadBy("a.test", 12), 0) // no longer than it was
		diff.Fatal(t, []string{"c.test", "a.test", "b.test", "d.test", "^a.test"}, f.ledBy(pod, n, 0), all, "led by")
		if got := f.ledBy(pod, n, 16); !slices.Equal(got, []string{"c.test", "^a.test"}) || f.Epoch(pod).Load() != 5 {
			t.Fatalf("%v: led later by %v", all, got)
		}
		if f.ledBy(pod, n, 17) != nil || f.ledBy(policy.PodRef{Name: "b"}, n, 0) != nil {
			t.Fatal("it does not end, or another pod is led")
		}
		if !f.Add(pod, n, leadBy("b.test", 30), 20) || f.Epoch(pod).Load() != 6 || len(f.Find(pod, n)) != 1 {
			t.Fatalf("a lead that was over: %v", f.Find(pod, n))
		}
	}
	many := make([]string, 30)
	for i := range many {
		many[i] = "name" + strconv.Itoa(100+i) + ".test"
		if i%6 == 0 {
			many[i] = "!" + many[i]
		}
	}
	for range 100 {
		var f Table
		random.Shuffle(len(many), func(i, j int) { many[i], many[j] = many[j], many[i] })
		for _, by := range many {
			f.Add(pod, n, leadBy(by, time.Minute), 0)
		}
		if got := f.ledBy(pod, n, 0); !slices.Equal(got, []string{"name100.test", "name106.test", "name112.test", "name118.test", "name124.test", "name101.test", "name102.test", "name103.test"}) {
			t.Fatalf("led by %v", got)
		}
	}
}
