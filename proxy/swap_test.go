package proxy

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestSelfQueryIsNotFooled: only the right text in a reply with its id counts.
func TestSelfQueryIsNotFooled(t *testing.T) {
	const alive = "alive.namegate.invalid. 0 IN TXT "
	for name, tt := range map[string]struct {
		packets script
		want    error // nil is alive
	}{
		"the right text": {func(q *dns.Msg, _ bool) [][]byte { return [][]byte{says(q, nil, alive+aliveText)} }, nil},
		"another text":   {func(q *dns.Msg, _ bool) [][]byte { return [][]byte{says(q, nil, alive+"x")} }, errNotServing},
		"no record":      {func(q *dns.Msg, _ bool) [][]byte { return [][]byte{says(q, nil)} }, errNotServing},
		"SERVFAIL":       {rcodeScript(dns.RcodeServerFailure), errNotServing},
		"another id": {func(q *dns.Msg, _ bool) [][]byte {
			return [][]byte{says(q, func(r *dns.Msg) { r.Id++ }, alive+aliveText)}
		}, context.DeadlineExceeded},
		"another id, then the right text": {func(q *dns.Msg, _ bool) [][]byte {
			return [][]byte{says(q, func(r *dns.Msg) { r.Id++ }, alive+"x"), says(q, nil, alive+aliveText)}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			up := startScript(t, tt.packets)
			patience := time.Minute
			if errors.Is(tt.want, context.DeadlineExceeded) {
				patience = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := l.s.SelfQuery(ctx, up.Addr); !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
		})
	}
}
