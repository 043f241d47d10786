package access

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"

	"golang.org/x/sync/semaphore"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/serve"
)

// viewVerb is the verb of every right that opens rows.
const viewVerb = "get"

// asked is one question about rights.
type asked struct {
	user [sha256.Size]byte
	serve.Right
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
	return v.user.Username
}

// May tells whether the caller has a right. What the API server said counts for 10 s, of the credentials too: an
// answer that follows the log ends soon after they do. The error is a *console.Refusal, as of Server.Viewer.
func (v *Viewer) May(ctx context.Context, r serve.Right) (yes bool, err error) {
	u, err := v.still()
	if err != nil || r.Namespace != "" && len(validation.IsDNS1123Label(r.Namespace)) > 0 {
		return false, err // it is no namespace, and it would be cached at any length
	}
	if yes, ok := v.known(u, r); ok {
		return yes, nil
	}
	turn := v.callers.turn(u.Username)
	if err = turn.Acquire(ctx, 1); err == nil {
		defer turn.Release(1)
		if yes, ok := v.known(u, r); ok {
			return yes, nil
		}
		yes, err = v.callers.may(ctx, u, r)
	}
	if err != nil {
		return false, v.callers.away(ctx, "what "+u.Username+" may see", err)
	}
	v.sees.Add(asked{u.key, r}, yes, keptFor)
	return yes, nil
}

// known returns the API server's recent answer.
func (v *Viewer) known(u user, r serve.Right) (yes, ok bool) {
	if all, _ := v.sees.Get(asked{u.key, serve.Right{Kind: r.Kind}}); all == true {
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
	if u.Username != v.user.Username {
		return user{}, console.Refuse(http.StatusUnauthorized, "these credentials belong to another user now; ask again")
	}
	v.user = u
	return u, nil
}

// turn lets a user have one request about rights in flight, so that a user who asks about a thousand namespaces does not
// block the API server for others.
func (c *callers) turn(user string) *semaphore.Weighted {
	turn := semaphore.NewWeighted(1)
	if known, ok, _ := c.turns.PeekOrAdd(user, turn); ok {
		return known
	}
	return turn
}

// may asks the API server whether a user has a right.
func (c *callers) may(ctx context.Context, u user, r serve.Right) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.Username, UID: u.UID, Groups: u.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: r.Namespace, Verb: viewVerb, Group: r.Kind.Group, Resource: r.Kind.Resource,
		},
	}
	for k, values := range u.Extra {
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
