package access

import (
	"context"
	"sync"
)

// userLocks let each user have one request about rights in flight, so that a user who
// asks about a thousand namespaces does not block the API server for others. The zero
// value is ready.
type userLocks struct {
	mu sync.Mutex
	of map[string]*userLock
}

// userLock is that of one user.
type userLock struct {
	locked chan struct{} // holds one
	users  int           // that have it, or wait for it
}

// lock waits for a user's turn; give ends it. The error is that of ctx.
func (t *userLocks) lock(ctx context.Context, user string) (give func(), err error) {
	mine := t.join(user)
	select {
	case mine.locked <- struct{}{}:
		return func() { <-mine.locked; t.leave(user) }, nil
	case <-ctx.Done():
		t.leave(user)
		return nil, ctx.Err()
	}
}

func (t *userLocks) join(user string) *userLock {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]*userLock{}
	}
	if t.of[user] == nil {
		t.of[user] = &userLock{locked: make(chan struct{}, 1)}
	}
	t.of[user].users++
	return t.of[user]
}

func (t *userLocks) leave(user string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[user].users--; t.of[user].users == 0 {
		delete(t.of, user)
	}
}
