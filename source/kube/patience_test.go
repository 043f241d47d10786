package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
)

// asks returns the end of the time for which States wait, once one does.
func asks(t *testing.T, clock pickedClock) chan<- time.Time {
	t.Helper()
	select {
	case over := <-clock.asked[PeersPatience]:
		return over
	case <-time.After(time.Minute):
		t.Fatal("no state waits for pods of other nodes")
		return nil
	}
}

// TestFirstPolicyWaitsForPeers: for any order of the objects that make a pod
// default-deny, no State does that without the pod's peers on other nodes.
func TestFirstPolicyWaitsForPeers(t *testing.T) {
	puts := map[string]func(*apiServer){
		v1alpha1.Resource + "/shop/p": func(api *apiServer) { api.put(v1alpha1.Resource, aPolicy("p", "www.example.org")) },
		"networkpolicies/shop/db":     func(api *apiServer) { api.put("networkpolicies", aNetworkPolicy("shop", "db", "db")) },
		"pods/shop/web":               func(api *apiServer) { api.put("pods", aPod("web", "10.0.0.1")) },
	}
	web, db := addrs("10.0.0.1")[0], addrs("10.1.0.1")[0]
	for last, put := range puts {
		for name, noStream := range map[string]bool{"streamed": false, "listed": true} {
			t.Run(strings.Split(last, "/")[0]+" "+name, func(t *testing.T) {
				api := withPeers(t)
				api.noStream = noStream
				api.remove(last)
				clock := newPickedClock(PeersPatience)
				r := runOn(t, api, clock)
				before := <-r.states
				api.setSilent("other pods")
				put(api)
				asks(t, clock)
				api.put("pods", aPod("zoo", "10.0.0.2")) // it waits too
				api.speak()
				c := compile.New()
				for s := before; podText(s) != "web[10.0.0.1] zoo[10.0.0.2]"; {
					s = <-r.states
					snap := c.Compile(s.Input)
					reached := policy.Flow{Protocol: policy.TCP, Reached: netip.AddrPortFrom(db, 80)}
					allowed, _ := policy.Evaluate(snap.View(web), snap, &reached)
					if s.Input.PeersUnknown || len(s.Input.NetworkPolicies) > 0 && !allowed {
						t.Errorf("a state with pods %q and policies %q has the peers %q", podText(s), policyText(s), remoteText(s))
					}
				}
			})
		}
	}
}

// patient is a source with a pod and a NetworkPolicy whose first State was handed on. A
// feed of pods of other nodes is there, and has not told any.
func patient(t *testing.T) (*Source, pickedClock) {
	t.Helper()
	clock := newPickedClock(PeersPatience, RemoteDelay)
	s := needing()
	s.clock, s.log = clock, s.link.log
	s.events, s.others = make(chan struct{}, 1), make(chan struct{}, 1)
	s.remote.wanted, s.remote.feeds = nil, map[string]*remoteFeed{}
	s.addFeed("shop")
	fatal.If(t, s.pods.Add(aPod("web", "10.0.0.1")))
	fatal.If(t, s.networkPolicies.Add(aNetworkPolicy("shop", "db", "db")))
	if got := step(t, s); len(got) != 1 {
		t.Fatalf("%d states", len(got))
	}
	return s, clock
}

// step does the work of Run after a burst, and returns the new State.
func step(t *testing.T, s *Source) (states []State) {
	s.watchRemote(t.Context())
	s.emit(func(state State) { states = append(states, state) })
	return states
}

// TestStatesWaitForPeers no longer than until one of these happens, and then the
// newest one comes.
func TestStatesWaitForPeers(t *testing.T) {
	fill := func(t *testing.T, s *Source) {
		fatal.If(t, s.remote.feeds["shop"].pods.Replace([]any{aFarPod("db", "10.1.0.1")}, ""))
	}
	for _, c := range []struct {
		name   string
		happen func(t *testing.T, s *Source, over chan<- time.Time)
		wakes  bool // it ends the wait for a burst by itself; else it is one's end
		remote string
		failed bool
	}{
		{"they are known", func(t *testing.T, s *Source, _ chan<- time.Time) { fill(t, s) }, true, "db[10.1.0.1]", false},
		{"there are none", func(t *testing.T, s *Source, _ chan<- time.Time) {
			fatal.If(t, s.remote.feeds["shop"].pods.Replace(nil, ""))
		}, true, "", false},
		{"the time is over", func(_ *testing.T, _ *Source, over chan<- time.Time) { over <- at(1) }, true, "unknown", false},
		{"the API server refuses", func(_ *testing.T, s *Source, _ chan<- time.Time) {
			s.link.note(s.remote.feeds["shop"].listWatch, errors.New("forbidden"))
		}, false, "unknown", true},
		{"the NetworkPolicy is gone", func(t *testing.T, s *Source, _ chan<- time.Time) { fatal.If(t, s.networkPolicies.Replace(nil, "")) }, false, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, clock := patient(t)
			fatal.If(t, s.policies.Add(aPolicy("p", "www.example.org")))
			if got := step(t, s); len(got) > 0 {
				t.Fatalf("a state with %q came without peers", policyText(got[0]))
			}
			fatal.If(t, s.pods.Add(aPod("zoo", "10.0.0.2")))
			if got := step(t, s); len(got) > 0 {
				t.Fatalf("a state with %q came without peers", podText(got[0]))
			}
			c.happen(t, s, asks(t, clock))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if c.wakes && !s.wait(ctx) {
				t.Fatal("it waits on")
			}
			got := step(t, s)
			if len(got) != 1 || podText(got[0]) != "web[10.0.0.1] zoo[10.0.0.2]" || policyText(got[0]) != "p:www.example.org" || remoteText(got[0]) != c.remote || len(got[0].Problems) > 0 != c.failed {
				t.Fatalf("handed on is %+v", got)
			}
			fatal.If(t, s.pods.Add(aPod("new", "10.0.0.3")))
			if got := step(t, s); len(got) != 1 || len(s.clock.(pickedClock).asked[PeersPatience]) > 0 {
				t.Errorf("what came later has waited: %v", got)
			}
			s.link.note(s.remote.feeds["shop"].listWatch, nil)
			fatal.If(t, s.pods.Add(aPod("newer", "10.0.0.4")))
			if got := step(t, s); len(got) != 1 {
				t.Errorf("what came later has waited: %v", got)
			}
		})
	}
}

// TestNoWaitWithoutNeed: no wait for known pods of other nodes, nor for those that the
// API server was known to refuse.
func TestNoWaitWithoutNeed(t *testing.T) {
	for name, before := range map[string]func(*Source){
		"known":   func(s *Source) { fatal.If(t, s.remote.feeds["shop"].pods.Replace(nil, "")) },
		"refused": func(s *Source) { s.link.note(s.remote.feeds["shop"].listWatch, errors.New("forbidden")) },
	} {
		s, _ := patient(t)
		before(s)
		fatal.If(t, s.policies.Add(aPolicy("p", "www.example.org")))
		if got := step(t, s); len(got) != 1 || policyText(got[0]) != "p:www.example.org" {
			t.Errorf("%s: handed on is %v", name, got)
		}
	}
}

// TestEveryStateComputesItsNeed: a change after the need was computed is in the next
// State, because this State would not wait for its peers.
func TestEveryStateComputesItsNeed(t *testing.T) {
	s, _ := patient(t)
	fatal.If(t, s.namespaces.Add(aNamespace("shop", nil)))
	s.watchRemote(t.Context())
	fatal.If(t, s.policies.Add(aPolicy("p", "www.example.org")))
	var got []string
	s.emit(func(state State) { got = append(got, fmt.Sprint(len(state.Input.Namespaces), policyText(state))) })
	if len(got) != 1 || got[0] != "1" {
		t.Errorf("handed on is %q", got)
	}
	if more := step(t, s); len(more) > 0 {
		t.Errorf("the policy came with the peers %q", remoteText(more[0]))
	}
}
