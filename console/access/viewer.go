package access

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
)

// viewVerb, on policies, is the right that opens the rows of a namespace.
const viewVerb = "get"

// asked is one question about rights.
type asked struct {
	user      [sha256.Size]byte
	namespace string
}

// Viewer is a caller that the API server knows. It implements console.Viewer.
type Viewer struct {
	callers *callers
	sees    *ttlCache[asked, bool]
	request *http.Request
	user    user

	mu sync.Mutex
}

var _ console.Viewer = (*Viewer)(nil)

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
	u, err := v.still()
	if err != nil {
		return false, err
	}
	if namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		return false, nil // it is none, and it would be cached at any length
	}
	if yes, ok := v.known(u, namespace); ok {
		return yes, nil
	}
	give, err := v.callers.locks.lock(ctx, u.name)
	if err != nil {
		return false, v.callers.away(ctx, "what "+u.name+" may see", err)
	}
	defer give()
	if yes, ok := v.known(u, namespace); ok {
		return yes, nil
	}
	yes, err := v.callers.may(ctx, u, namespace)
	if err != nil {
		return false, v.callers.away(ctx, "what "+u.name+" may see", err)
	}
	v.sees.put(asked{u.key, namespace}, yes)
	return yes, nil
}

// known returns the API server's recent answer.
func (v *Viewer) known(u user, namespace string) (yes, ok bool) {
	if all, ok := v.sees.get(asked{u.key, ""}); ok && all {
		return true, true
	}
	return v.sees.get(asked{u.key, namespace})
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
		return user{}, console.Refuse(http.StatusUnauthorized, "these credentials are somebody else's now; ask again")
	}
	v.user = u
	return u, nil
}

// may asks the API server whether a user may get the policies of a namespace.
func (c *callers) may(ctx context.Context, u user, namespace string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.name, UID: u.uid, Groups: u.groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: viewVerb, Group: v1alpha1.Group, Resource: v1alpha1.Resource,
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
