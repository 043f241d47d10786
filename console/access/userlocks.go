package access

import (
	"context"
	"sync"
)

// turns let each user have one question about rights under way, so that nobody who
// asks about a thousand namespaces keeps the API server from answering others. The
// zero value is ready.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

// turn is that of one user.
type turn struct {
	taken chan struct{} // holds one
	users int           // who have it, or wait for it
}

// take waits for a user's turn; give ends it. The error is that of ctx.
func (t *turns) take(ctx context.Context, user string) (give func(), err error) {
	mine := t.join(user)
	select {
	case mine.taken <- struct{}{}:
		return func() { <-mine.taken; t.leave(user) }, nil
	case <-ctx.Done():
		t.leave(user)
		return nil, ctx.Err()
	}
}

func (t *turns) join(user string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]*turn{}
	}
	if t.of[user] == nil {
		t.of[user] = &turn{taken: make(chan struct{}, 1)}
	}
	t.of[user].users++
	return t.of[user]
}

func (t *turns) leave(user string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[user].users--; t.of[user].users == 0 {
		delete(t.of, user)
	}
}
