package nnp

import (
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestSafeguard: the time of the safeguard, and its default where it cannot be read.
func TestSafeguard(t *testing.T) {
	for spec, want := range map[string]struct {
		within  time.Duration
		problem string
	}{
		"":                                      {},
		", safeguard: {}":                       {within: 5 * time.Minute},
		", safeguard: {confirmWithin: 1m}":      {within: time.Minute},
		", safeguard: {confirmWithin: 1h30m}":   {within: 90 * time.Minute},
		", safeguard: {confirmWithin: 24h}":     {within: 24 * time.Hour},
		", safeguard: {confirmWithin: 59s}":     {5 * time.Minute, `spec.safeguard.confirmWithin "59s"; write 1m to 24h`},
		", safeguard: {confirmWithin: 24h1s}":   {5 * time.Minute, `spec.safeguard.confirmWithin "24h1s"; write 1m to 24h`},
		", safeguard: {confirmWithin: 1.5m}":    {5 * time.Minute, `"1.5m"; write 1m to 24h`},
		", safeguard: {confirmWithin: 90000ms}": {5 * time.Minute, `"90000ms"; write 1m to 24h`},
		", safeguard: {confirmWithin: soon}":    {5 * time.Minute, `(the default 5m0s counts)`},
	} {
		p := policytest.NodePolicy(t, "p", "{nodeSelector: {}, priority: 1"+spec+"}")
		within, _ := ConfirmWithin(&p.Spec)
		said := strings.Join(problems(Read(p)), "\n")
		if within != want.within || (want.problem == "") != (said == "") || !strings.Contains(said, want.problem) {
			t.Errorf("%s: %v %q", spec, within, said)
		}
	}
}

// TestConfirmed: the annotation confirms the generation that it names, and no other.
func TestConfirmed(t *testing.T) {
	for annotation, want := range map[string]bool{"3": true, "": false, "2": false, "4": false, "03": false, "3 ": false, "true": false} {
		p := &v1alpha1.NodeNetworkPolicy{}
		p.Generation, p.Annotations = 3, map[string]string{v1alpha1.ConfirmedAnnotation: annotation}
		if Confirmed(p) != want {
			t.Errorf("annotation %q: %v", annotation, !want)
		}
	}
	p := &v1alpha1.NodeNetworkPolicy{}
	p.Annotations = map[string]string{v1alpha1.ConfirmedAnnotation: "0"}
	if Confirmed(p) {
		t.Error("a policy without a generation is confirmed")
	}
	diff.Equal(t, "kubectl annotate nnp edge namegate.io/confirmed=3 --overwrite", ConfirmCommand("edge", 3))
}
