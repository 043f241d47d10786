package conformance

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	reports "sigs.k8s.io/network-policy-api/conformance/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
	"sigs.k8s.io/network-policy-api/pkg/consts"

	"github.com/namegate/namegate/e2e/conformance/names"
)

// results are those of the suite of names, in the form of upstream's reports: its features
// are in no profile, for which upstream would write one.
type results struct {
	mu     sync.Mutex
	status reports.ExperimentalStatus
}

func newResults(supported sets.Set[suite.SupportedFeature]) *results {
	r := &results{}
	for _, f := range names.Features {
		if supported.Has(f) {
			r.status.SupportedFeatures = append(r.status.SupportedFeatures, string(f))
		} else {
			r.status.UnsupportedFeatures = append(r.status.UnsupportedFeatures, string(f))
		}
	}
	return r
}

// add counts a test that has ended.
func (r *results) add(t *testing.T, test *suite.ConformanceTest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case t.Failed():
		r.status.Failed++
		r.status.FailedTests = append(r.status.FailedTests, test.ShortName)
	case t.Skipped():
		r.status.Skipped++
		r.status.SkippedTests = append(r.status.SkippedTests, test.ShortName)
	default:
		r.status.Passed++
	}
}

func (r *results) report(i reports.Implementation) *reports.ConformanceReport {
	s := &r.status
	slices.Sort(s.FailedTests)
	slices.Sort(s.SkippedTests)
	if s.Result = reports.Success; s.Failed+s.Skipped > 0 { // as of upstream's tests that are not optional
		s.Result = reports.Failure
	}
	s.Summary = fmt.Sprintf("%d tests of domain names passed, %d failed, %d were skipped", s.Passed, s.Failed, s.Skipped)
	return &reports.ConformanceReport{
		TypeMeta: apiVersion, Implementation: i, Date: time.Now().Format(time.RFC3339), NetworkPolicyBundleVersion: consts.BundleVersion,
		ProfileReports: []reports.ProfileReport{{Name: string(names.SupportDomainNames), Experimental: s}},
	}
}
