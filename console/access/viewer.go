package access

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/cnp"
)

// viewVerb, on policies, is the right that opens the rows of a namespace, and on a kind of
// cluster policies the right that opens these.
const viewVerb = "get"

// asked is one question about rights.
type asked struct {
	user [sha256.Size]byte
	right
}

// right is to get the objects of a kind in a namespace, "" for all.
type right struct {
	kind      schema.GroupResource
	namespace string
}

// ofNamespace is the right that opens the rows of a namespace, "" for all.
func ofNamespace(namespace string) right {
	return right{v1alpha1.GroupVersionResource().GroupResource(), namespace}
}

// Viewer is a caller that the API server knows. It implements serve.Viewer.
type Viewer struct {
	callers *callers
	sees    *cache.LRUExpireCache
	request *http.Request
	user    user

	mu sync.Mutex
}

var _ serve.Viewer = (*Viewer)(nil)

// Name returns the caller's name, as the API server has it.
func (v *Viewer) Name() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.user.name
}

// Sees tells whether the caller may get policies in a namespace, "" for all. What
// the API server said counts for 10 s, of the credentials too: an answer that follows
// the log ends soon after they do. The error is a *console.Refusal, as of Server.Viewer.
func (v *Viewer) Sees(ctx context.Context, namespace string) (bool, error) {
	if namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		_, err := v.still()
		return false, err // it is none, and it would be cached at any length
	}
	return v.has(ctx, ofNamespace(namespace))
}

// SeesCluster is Sees for the cluster policies of a kind.
func (v *Viewer) SeesCluster(ctx context.Context, standard bool) (bool, error) {
	kind := v1alpha1.ClusterGroupVersionResource().GroupResource()
	if standard {
		kind = cnp.Resource().GroupResource()
	}
	return v.has(ctx, right{kind: kind})
}

// has tells whether the caller has a right.
func (v *Viewer) has(ctx context.Context, r right) (bool, error) {
	u, err := v.still()
	if err != nil {
		return false, err
	}
	if yes, ok := v.known(u, r); ok {
		return yes, nil
	}
	give, err := v.callers.locks.lock(ctx, u.name)
	if err != nil {
		return false, v.callers.away(ctx, "what "+u.name+" may see", err)
	}
	defer give()
	if yes, ok := v.known(u, r); ok {
		return yes, nil
	}
	yes, err := v.callers.may(ctx, u, r)
	if err != nil {
		return false, v.callers.away(ctx, "what "+u.name+" may see", err)
	}
	v.sees.Add(asked{u.key, r}, yes, keptFor)
	return yes, nil
}

// known returns the API server's recent answer.
func (v *Viewer) known(u user, r right) (yes, ok bool) {
	if all, _ := v.sees.Get(asked{u.key, right{kind: r.kind}}); all == true {
		return true, true
	}
	one, ok := v.sees.Get(asked{u.key, r})
	return one == true, ok
}

// still returns the caller, checked again if the last check was long ago.
func (v *Viewer) still() (user, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.callers.now()
	if now.Before(v.user.until) {
		return v.user, nil
	}
	u, err := v.callers.who(v.request)
	if err != nil {
		return user{}, err
	}
	if u.name != v.user.name {
		return user{}, console.Refuse(http.StatusUnauthorized, "these credentials belong to another user now; ask again")
	}
	v.user = u
	return u, nil
}

// may asks the API server whether a user has a right.
func (c *callers) may(ctx context.Context, u user, r right) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.name, UID: u.uid, Groups: u.groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: r.namespace, Verb: viewVerb, Group: r.kind.Group, Resource: r.kind.Resource,
		},
	}
	for k, values := range u.extra {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[k] = authorizationv1.ExtraValue(values)
	}
	ask := &authorizationv1.SubjectAccessReview{Spec: spec}
	got, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, ask, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return got.Status.Allowed && !got.Status.Denied, nil
}
