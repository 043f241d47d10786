package status

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// slowServer is an API server for the statuses of many policies, behind a client with
// the agent's rate. A request takes a quarter of a second, as on a busy server.
type slowServer struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface
	rate flowcontrol.RateLimiter

	mu                    sync.Mutex
	policies              map[string]*v1alpha1.FQDNNetworkPolicy
	requests              int
	inFlight, maxInFlight int
}

const slowRequest = 250 * time.Millisecond

func (s *slowServer) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return s
}

func (s *slowServer) Namespace(namespace string) dynamic.ResourceInterface {
	return slowNamespace{s, namespace}
}

type slowNamespace struct {
	*slowServer
	namespace string
}

func (s slowNamespace) ApplyStatus(ctx context.Context, name string, u *unstructured.Unstructured, _ metav1.ApplyOptions) (*unstructured.Unstructured, error) {
	if err := s.rate.Wait(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.requests++
	s.inFlight++
	s.maxInFlight = max(s.maxInFlight, s.inFlight)
	s.mu.Unlock()
	time.Sleep(slowRequest)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	var status struct {
		Status v1alpha1.FQDNNetworkPolicyStatus `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"status": u.Object["status"]}, &status); err != nil {
		return nil, err
	}
	p := s.policies[s.namespace+"/"+name]
	after := p.DeepCopy()
	after.ResourceVersion, after.Status = next(p.ResourceVersion), status.Status
	s.policies[s.namespace+"/"+name] = after
	u.SetResourceVersion(after.ResourceVersion)
	return u, nil
}

// list is the policies of a source.
func (s *slowServer) list() (out []*v1alpha1.FQDNNetworkPolicy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.policies {
		out = append(out, p.DeepCopy())
	}
	slices.SortFunc(out, func(a, b *v1alpha1.FQDNNetworkPolicy) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return out
}

// missing counts the policies without a condition, or with another one than a check says.
func (s *slowServer) missing(check func(*v1alpha1.FQDNNetworkPolicy) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.policies {
		if !check(p) {
			n++
		}
	}
	return n
}

// TestConditionsOfAThousandPolicies: within 30 seconds of the end of one apply, by a
// client's rate and the time of a request, while two other nodes have findings of some. Every policy is written once for each change, and
// once more at most where the source had not told of the write before.
func TestConditionsOfAThousandPolicies(t *testing.T) {
	const all, found = 1000, 100
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{rate: flowcontrol.NewTokenBucketRateLimiter(StatusesPerSecond, StatusBurst), policies: map[string]*v1alpha1.FQDNNetworkPolicy{}}
		client := fake.NewClientset()
		var agents []*Reporter
		var findings []Finding
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for i := range 3 {
			r, err := New(Options{Client: client, Dynamic: server, Namespace: "namegate", Node: fmt.Sprint("n", i), Identity: fmt.Sprint("agent-", i),
				Log: silent})
			fatal.If(t, err)
			agents = append(agents, r)
			running.Go(func() {
				if err := r.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		tell := func() {
			list := server.list()
			for _, r := range agents {
				s := State{Policies: list}
				if r != agents[0] {
					s.Findings = findings
				}
				r.Set(s)
			}
		}
		pass := func(seconds int) {
			for range 2 * seconds {
				time.Sleep(500 * time.Millisecond)
				synctest.Wait()
				tell()
			}
		}
		tell()
		pass(10) // one is elected
		for i := range all {
			p := aPolicy(fmt.Sprint("shop-", i%4), fmt.Sprint("p", i))
			server.mu.Lock()
			server.policies[p.Namespace+"/"+p.Name] = p
			server.mu.Unlock()
			if i%50 == 49 {
				pass(1) // as fast as kubectl applies
			}
		}
		for i := range found {
			findings = append(findings, blocked(fmt.Sprintf("shop-%d/p%d", i%4, i), "cart"))
		}
		pass(30)
		if n := server.missing(func(p *v1alpha1.FQDNNetworkPolicy) bool { return says(p, ConditionEnforced) == "True NoBlindSpot" }); n > 0 {
			t.Errorf("%d policies have no condition 30 s after the last came", n)
		}
		n := server.missing(func(p *v1alpha1.FQDNNetworkPolicy) bool { return says(p, ConditionDNSBlocked) == "False Reachable" })
		diff.Equal(t, found, n, "policies say what nodes found")
		if server.maxInFlight > statusesInFlight || server.requests > all+2*found {
			t.Errorf("%d requests, %d in flight at most", server.requests, server.maxInFlight)
		}
		cancel()
		running.Wait()
	})
}
