package safeguard

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// step is one step of a history. A restart is a state that was written and read again.
type step struct {
	after    time.Duration // since the step before
	away     time.Duration
	reboot   bool
	policies []Policy
	turned   map[string]Reason // wanted
}

func edge(generation int64, confirmed bool) []Policy {
	return []Policy{{Name: "edge", UID: "u", Generation: generation, Confirmed: confirmed, Within: 5 * time.Minute}}
}

// TestSteps: the histories that the issue and the documents name.
func TestSteps(t *testing.T) {
	notConfirmed, noServer := map[string]Reason{"edge": NotConfirmed}, map[string]Reason{"edge": NoAPIServer}
	for name, steps := range map[string][]step{
		"never confirmed": {
			{policies: edge(1, false)},
			{after: 5*time.Minute - 1, policies: edge(1, false)},
			{after: 1, policies: edge(1, false), turned: notConfirmed},
			{after: time.Hour, policies: edge(1, false), turned: notConfirmed},
		},
		"confirmed in time, and the API server away for a day": {
			{policies: edge(1, false)},
			{after: 4 * time.Minute, policies: edge(1, true)},
			{after: 24 * time.Hour, away: 24 * time.Hour, policies: edge(1, true)},
		},
		"confirmed late": {
			{policies: edge(1, false)},
			{after: 6 * time.Minute, policies: edge(1, false), turned: notConfirmed},
			{after: time.Second, policies: edge(1, true)},
		},
		"a new generation has its own time": {
			{policies: edge(1, true)},
			{after: time.Hour, policies: edge(2, false)},
			{after: 4 * time.Minute, policies: edge(3, false)},
			{after: 4 * time.Minute, policies: edge(3, false)},
			{after: time.Minute, policies: edge(3, false), turned: notConfirmed},
			{after: time.Second, policies: edge(4, false)},
		},
		"the API server away": {
			{policies: edge(1, false)},
			{after: time.Minute, away: 59 * time.Second, policies: edge(1, false)},
			{after: time.Second, away: time.Minute, policies: edge(1, false), turned: noServer},
			{after: time.Second, policies: edge(1, false), turned: noServer},
			{after: time.Hour, policies: edge(1, false), turned: noServer},
			{after: time.Second, policies: edge(1, true)},
		},
		"the API server away since before": {
			{away: time.Hour, policies: edge(1, false)},
			{after: 59 * time.Second, away: time.Hour + 59*time.Second, policies: edge(1, false)},
			{after: time.Second, away: time.Hour + time.Minute, policies: edge(1, false), turned: noServer},
		},
		"a machine that starts again": {
			{policies: edge(1, false)},
			{after: 4 * time.Minute, reboot: true, policies: edge(1, false)},
			{after: 4 * time.Minute, policies: edge(1, false)},
			{after: time.Minute, policies: edge(1, false), turned: notConfirmed},
			{reboot: true, policies: edge(1, false), turned: notConfirmed},
		},
		"a policy of the same name, made anew": {
			{policies: edge(1, false)},
			{after: 6 * time.Minute, policies: edge(1, false), turned: notConfirmed},
			{after: 1, policies: []Policy{{Name: "edge", UID: "v", Generation: 1, Within: time.Minute}}},
		},
		"a policy that does not select the node for a while": {
			{policies: edge(1, false)},
			{after: 6 * time.Minute, policies: edge(1, false), turned: notConfirmed},
			{after: 1},
			{after: 1, policies: edge(1, false)},
		},
	} {
		var s State
		var at time.Duration
		boot := 0
		for i, st := range steps {
			if at += st.after; st.reboot {
				boot, at = boot+1, time.Second
			}
			s = reread(t, s.Step(Moment{Boot: fmt.Sprint(boot), At: at, Away: st.away}, st.policies))
			diff.Error(t, st.turned, reasons(s), name, "step", i)
		}
	}
}

// reread returns a state as the next agent reads it.
func reread(t *testing.T, s State) (again State) {
	t.Helper()
	text, err := json.Marshal(s)
	fatal.If(t, err)
	fatal.If(t, json.Unmarshal(text, &again))
	return again
}

func reasons(s State) (out map[string]Reason) {
	for name, g := range s.Pending {
		if g.Turned != "" {
			if out == nil {
				out = map[string]Reason{}
			}
			out[name] = g.Turned
		}
	}
	return out
}

// past is one step of a random history.
type past struct {
	Moment
	policies []Policy
}

// slowly returns the reason of a policy at the end of a history, from the whole of it: the steps
// in a row at the end in which this generation was unconfirmed.
func slowly(history []past, p Policy) Reason {
	if p.Confirmed {
		return ""
	}
	begin := len(history)
	for begin > 0 && slices.ContainsFunc(history[begin-1].policies, func(o Policy) bool {
		return o.Name == p.Name && o.UID == p.UID && o.Generation == p.Generation && !o.Confirmed
	}) {
		begin--
	}
	since := history[begin]
	for _, h := range history[begin:] {
		if h.Boot != since.Boot {
			since = h
		}
		at := slices.IndexFunc(h.policies, func(o Policy) bool { return o.Name == p.Name })
		switch passed := h.At - since.At; {
		case passed >= h.policies[at].Within:
			return NotConfirmed
		case passed >= AwayLimit && h.Away >= AwayLimit:
			return NoAPIServer
		}
	}
	return ""
}

// TestRandomHistories compares Step with the whole history: clock steps, new generations,
// confirmations and their ends, outages, policies that come and go, agents and machines that
// start again.
func TestRandomHistories(t *testing.T) {
	for range 300 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		var s State
		var history []past
		now, boot := Moment{Boot: "0"}, 0
		all := map[string]Policy{}
		for i := range 60 {
			d := time.Duration(r.IntN(90)) * time.Second
			if now.At += d; r.IntN(3) == 0 {
				now.Away = 0
			} else if now.Away > 0 || r.IntN(4) == 0 {
				now.Away += d
			}
			if r.IntN(15) == 0 {
				boot++
				now.Boot, now.At = fmt.Sprint(boot), time.Duration(r.IntN(1000))*time.Second
			}
			name := string(rune('a' + r.IntN(3)))
			p, there := all[name]
			switch r.IntN(8) {
			case 0:
				all[name] = Policy{Name: name, UID: fmt.Sprint(i), Generation: 1, Within: time.Duration(1+r.IntN(4)) * time.Minute}
			case 1:
				delete(all, name)
			case 2:
				if there {
					p.Generation, p.Confirmed, p.Within = p.Generation+1, false, time.Duration(1+r.IntN(4))*time.Minute
					all[name] = p
				}
			case 3:
				if there {
					p.Confirmed = !p.Confirmed
					all[name] = p
				}
			}
			policies := slices.Collect(maps.Values(all))
			if s = s.Step(now, policies); r.IntN(4) == 0 {
				s = reread(t, s)
			}
			history = append(history, past{now, policies})
			got := reasons(s)
			for _, p := range policies {
				diff.MustEqual(t, slowly(history, p), got[p.Name], "seed", seed, "step", i, p)
				delete(got, p.Name)
			}
			if len(got) > 0 {
				t.Fatalf("seed %d, step %d: of no policy: %v", seed, i, got)
			}
		}
	}
}

// TestMessages: what a reader is to do.
func TestMessages(t *testing.T) {
	s := State{Pending: map[string]Pending{
		"a": {Generation: 3, Within: 90 * time.Minute, Turned: NotConfirmed}, "b": {Generation: 1, Turned: NoAPIServer}, "c": {Generation: 1},
	}}
	want := map[string]string{
		"a": "generation 3 was not confirmed within 1h30m: to enforce it again, run kubectl annotate nnp a namegate.io/confirmed=3 --overwrite, or change the policy",
		"b": "the API server was unavailable for a minute while generation 1 was not confirmed: to enforce it again, run kubectl annotate nnp b namegate.io/confirmed=1 --overwrite, or change the policy",
	}
	diff.Error(t, want, s.Turned())
	for d, want := range map[time.Duration]string{time.Minute: "1m", 24 * time.Hour: "24h", 90 * time.Second: "1m30s", 20 * time.Minute: "20m", 10 * time.Hour: "10h"} {
		diff.Equal(t, want, Text(d), d)
	}
}
