package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

func TestLifetime(t *testing.T) {
	ttl := policy.TTL{Min: 30 * time.Second, Max: time.Hour, Grace: time.Minute}
	for in, want := range map[uint32]time.Duration{
		0: 90 * time.Second, 29: 90 * time.Second, 30: 90 * time.Second, 31: 91 * time.Second, 3600: 61 * time.Minute, 3601: 61 * time.Minute,
		1<<31 - 1: 61 * time.Minute, 1 << 31: 90 * time.Second, 1<<32 - 1: 90 * time.Second,
	} {
		diff.Equal(t, want, ttl.Lifetime(in), in)
	}
}

func TestWords(t *testing.T) {
	got := fmt.Sprint(policy.Resolve, policy.NXDomain, policy.Refuse, policy.Reject, policy.Drop, policy.Accept, policy.Deny, policy.Pass, policy.Admin, policy.Namespace, policy.Baseline, policy.AnyProtocol, policy.TCP, policy.UDP, policy.SCTP, policy.Protocol(47))
	diff.Equal(t, "Resolve NXDomain Refuse Reject Drop Accept Deny Pass Admin Namespace Baseline any tcp udp sctp 47", got)
}

func TestAcceptance(t *testing.T) {
	part := policy.Problem{Reason: policy.ReasonPartiallyInvalid, Path: "spec.x", Message: "write y"}
	whole := policy.Problem{Reason: policy.ReasonInvalid, Message: "no"}
	for _, c := range []struct {
		problems []policy.Problem
		accepted bool
		want     string
	}{
		{nil, true, "Accepted every part of the policy works"},
		{[]policy.Problem{part}, true, "PartiallyInvalid spec.x: write y"},
		{[]policy.Problem{part, whole}, false, "Invalid spec.x: write y\nno"},
		{slices.Repeat([]policy.Problem{part}, 8), true, "PartiallyInvalid " + strings.Join(slices.Repeat([]string{"spec.x: write y"}, 8), "\n")},
		{slices.Repeat([]policy.Problem{part}, 20), true, "PartiallyInvalid " + strings.Join(slices.Repeat([]string{"spec.x: write y"}, 8), "\n") + "\nand more"},
	} {
		accepted, reason, message := policy.Acceptance(c.problems)
		if got := reason + " " + message; accepted != c.accepted || got != c.want {
			t.Errorf("%v, %s", accepted, got)
		}
	}
}

func TestOrderOfClusterPolicies(t *testing.T) {
	order := []policy.ClusterPolicy{{policy.Admin, 0, false, "z"}, {policy.Admin, 5, false, "a"}, {policy.Admin, 5, false, "b"}, {policy.Admin, 5, true, "a"}, {policy.Admin, 10, false, "a"}, {policy.Baseline, 0, false, "a"}}
	for i, a := range order {
		for j, b := range order {
			if got, want := a.Compare(b), i-j; (got < 0) != (want < 0) || (got > 0) != (want > 0) {
				t.Errorf("%d and %d: %d", i, j, got)
			}
		}
	}
}
