package nnp

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// The bounds of spec.safeguard.confirmWithin and its default, as in the schema.
const (
	MinConfirmWithin     = time.Minute
	MaxConfirmWithin     = 24 * time.Hour
	DefaultConfirmWithin = 5 * time.Minute
)

// ConfirmWithin returns the time of spec.safeguard, 0 for none. With an error, which says what to write,
// it is the default.
func ConfirmWithin(spec *v1alpha1.NodeNetworkPolicySpec) (time.Duration, error) {
	s := spec.Safeguard
	if s == nil {
		return 0, nil
	}
	if s.ConfirmWithin == "" {
		return DefaultConfirmWithin, nil
	}
	within, err := time.ParseDuration(s.ConfirmWithin)
	odd := strings.Trim(s.ConfirmWithin, "0123456789hms") != "" || strings.Contains(s.ConfirmWithin, "ms") // the schema has no fractions
	if err != nil || odd || within < MinConfirmWithin || within > MaxConfirmWithin {
		return DefaultConfirmWithin, fmt.Errorf("%q; write 1m to 24h, in hours, minutes and seconds: 5m, 1h30m (the default %v counts)", s.ConfirmWithin, DefaultConfirmWithin)
	}
	return within, nil
}

// Confirmed tells whether the annotation of a policy names its generation. A policy without a
// generation, which no API server has seen, is not confirmed.
func Confirmed(p *v1alpha1.NodeNetworkPolicy) bool {
	return p.Generation > 0 && p.Annotations[v1alpha1.ConfirmedAnnotation] == strconv.FormatInt(p.Generation, 10)
}

// ConfirmCommand is the command that confirms the generation of a policy.
func ConfirmCommand(name string, generation int64) string {
	return "kubectl annotate nnp " + name + " " + v1alpha1.ConfirmedAnnotation + "=" + strconv.FormatInt(generation, 10) + " --overwrite"
}
