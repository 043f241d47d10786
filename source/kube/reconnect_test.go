package kube

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestAPIServerReconnects: while the API server is away the last state stays; what happened
// meanwhile comes when it is back; each is logged once.
func TestAPIServerReconnects(t *testing.T) {
	api := newAPIServer(t)
	api.put("pods", aPod("gone", "10.0.0.1"))
	api.put(v1alpha1.Resource, aPolicy("p", "www.example.org"))
	var log syncBuffer
	client, dyn := api.clients()
	r := run(t, client, dyn, slog.New(slog.NewTextHandler(&log, nil)), kubeDNS)
	r.until("gone[10.0.0.1]", podText)
	for round := range 2 {
		begin := time.Now()
		api.setAway(true)
		h := r.untilHealth("an error", away)
		if h.Disconnected.Before(begin) {
			t.Errorf("round %d: %+v", round, h)
		}
		api.remove("pods/shop/gone")
		api.put("pods", aPod("new", "10.0.0.2"))
		diff.Equal(t, 0, len(r.states), "round", round, "states while the server is away")
		api.setAway(false)
		r.until("new[10.0.0.2]", podText)
		r.untilHealth("well", well)
		api.put("pods", aPod("gone", "10.0.0.1"))
		api.remove("pods/shop/new")
		r.until("gone[10.0.0.1]", podText)
	}
	if n, m := strings.Count(log.String(), "away or refuses"), strings.Count(log.String(), "fails any more"); n != 2 || m != 2 {
		t.Errorf("%d and %d lines for two times:\n%s", n, m, log.String())
	}
}

// TestBackWithoutNews: the end of an absence is noticed also if nothing has happened.
func TestBackWithoutNews(t *testing.T) {
	api := newAPIServer(t)
	api.put("pods", aPod("web", "10.0.0.1"))
	r := runAt(t, api)
	r.until("web[10.0.0.1]", podText)
	api.setAway(true)
	r.untilHealth("an error", away)
	api.setAway(false)
	r.untilHealth("well", well)
	diff.Equal(t, 0, len(r.states), "states although nothing has changed")
}

func TestAPIServerUnavailableAtTheStart(t *testing.T) {
	api := newAPIServer(t)
	api.put("pods", aPod("web", "10.0.0.1"))
	api.setAway(true)
	r := runAt(t, api, kubeDNS)
	if h := r.untilHealth("an error", away); len(r.states) > 0 {
		t.Errorf("%+v, %d states", h, len(r.states))
	}
	api.setAway(false)
	r.until("web[10.0.0.1]", podText)
	r.untilHealth("well", well)
}

// TestExpiredVersion: when the server cannot continue a watch, everything is listed
// again, and the server does not count as unavailable.
func TestExpiredVersion(t *testing.T) {
	for name, noStream := range map[string]bool{"streamed": false, "listed": true} {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer(t)
			api.noStream = noStream
			api.put("pods", aPod("gone", "10.0.0.1"))
			var log syncBuffer
			client, dyn := api.clients()
			r := run(t, client, dyn, slog.New(slog.NewTextHandler(&log, nil)))
			r.until("gone[10.0.0.1]", podText)
			api.mu.Lock() // both changes at once, so that no watch sees only one
			delete(api.objects, "pods/shop/gone")
			api.version += 2
			api.oldest = api.version
			close(api.more)
			api.more = make(chan struct{})
			api.mu.Unlock()
			r.until("", podText)
			api.put("pods", aPod("new", "10.0.0.2"))
			r.until("new[10.0.0.2]", podText)
			diff.Equal(t, "", log.String(), "logged")
			if lists := api.requests("list namespaces"); (lists > 0) != noStream {
				t.Errorf("%d lists", lists)
			}
		})
	}
}

// TestRewatch: after a cut the watch continues; nothing is listed again.
func TestRewatch(t *testing.T) {
	api := newAPIServer(t)
	api.noStream = true
	api.put("pods", aPod("web", "10.0.0.1"))
	r := runAt(t, api)
	r.until("web[10.0.0.1]", podText)
	lists := api.requests("list pods")
	for _, ip := range []string{"10.0.0.2", "10.0.0.3"} {
		api.put("pods", aPod("web", "10.0.0.9")) // client-go lists again after a short watch without events
		r.until("web[10.0.0.9]", podText)
		api.setAway(true)
		r.untilHealth("an error", away)
		api.put("pods", aPod("web", ip))
		api.setAway(false)
		r.until("web["+ip+"]", podText)
	}
	diff.Equal(t, lists, api.requests("list pods"), "lists")
}

// TestManyAtOnce: a burst of a thousand changes is a few states, and the last is whole.
func TestManyAtOnce(t *testing.T) {
	api := newAPIServer(t)
	r := runAt(t, api)
	r.last = <-r.states
	const pods = 1000
	for i := range pods {
		api.put("pods", with(aPod("web", "10.0.0.1"), func(p *corev1.Pod) {
			p.Name = "web-" + string(rune('a'+i/100)) + string(rune('a'+i/10%10)) + string(rune('a'+i%10))
		}))
	}
	states, began := 0, time.Now()
	r.until("all", func(s State) string {
		states++
		if len(s.Input.Pods) == pods {
			return "all"
		}
		return ""
	})
	if took := time.Since(began); states > 2+int(took/QuietDelay) { // a machine that stands still ends a burst
		t.Errorf("%d states for %d changes in %v", states, pods, took)
	}
}

// TestLink: the log tells of the first failure and of the end of the last.
func TestLink(t *testing.T) {
	var log bytes.Buffer
	now := at(0)
	pods, nodes, services, slices := &listWatch{name: "pods"}, &listWatch{name: "nodes"}, &listWatch{name: "services"}, &listWatch{name: "slices"}
	l := newLink(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
	for i, step := range []struct {
		do    func()
		since int // 0: well
		last  string
		logs  string
	}{
		{func() { l.note(pods, nil) }, 0, "", ""},
		{func() { l.note(pods, errors.New("refused")) }, 2, "pods: refused", "level=WARN"},
		{func() { l.note(pods, errors.New("timeout")) }, 2, "pods: timeout", ""},
		{func() { l.note(nodes, errors.New("refused")) }, 2, "nodes: refused", ""},
		{func() { l.note(pods, nil) }, 2, "nodes: refused", ""},
		{func() { l.note(services, nil) }, 2, "nodes: refused", ""},
		{func() { l.note(nodes, nil) }, 0, "", "fails any more\" after=5s"},
		{func() { l.note(nodes, nil) }, 0, "", ""},
		{func() { l.note(slices, errors.New("forbidden")) }, 9, "slices: forbidden", "level=WARN"},
		{func() { l.end(pods) }, 9, "slices: forbidden", ""},
		{func() { l.end(&listWatch{name: "slices"}) }, 9, "slices: forbidden", ""}, // another of its name
		{func() { l.end(slices) }, 0, "", "fails any more"},
		{func() { l.note(slices, errors.New("forbidden")) }, 0, "", ""}, // it has ended
	} {
		now = at(i + 1)
		log.Reset()
		step.do()
		h := l.health()
		if h.LastError != step.last || step.since == 0 != h.Disconnected.IsZero() || step.since > 0 && !h.Disconnected.Equal(at(step.since)) {
			t.Errorf("step %d: %+v", i, h)
		}
		if got := log.String(); step.logs == "" != (got == "") || !strings.Contains(got, step.logs) {
			t.Errorf("step %d: logged %q", i, got)
		}
	}
}

// TestWait: when a wait for the end of a burst ends. Each change of this node restarts
// the quiet time, up to the maximum. Changes of pods of other nodes have a separate time,
// which neither prolongs the quiet time nor is prolonged.
func TestWait(t *testing.T) {
	const step = QuietDelay - time.Millisecond
	var (
		note   = (*Source).note
		remote = (*Source).noteRemote
		both   = func(s *Source) { s.note(); s.noteRemote() }
		none   = func(*Source) {}
	)
	for name, c := range map[string]struct {
		changes []func(*Source) // one each step, the last one again and again
		want    time.Duration
	}{
		"a change":                   {[]func(*Source){note, none}, QuietDelay},
		"a burst":                    {[]func(*Source){note, note, note, none}, 2*step + QuietDelay},
		"a burst without end":        {[]func(*Source){note}, MostDelay},
		"others alone":               {[]func(*Source){remote, none}, RemoteDelay},
		"others without end":         {[]func(*Source){remote}, RemoteDelay},
		"others prolong nothing":     {[]func(*Source){remote, both, note, remote}, 2*step + QuietDelay},
		"others end a burst in time": {[]func(*Source){remote, note}, RemoteDelay},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, began := &Source{clock: clock.RealClock{}, events: make(chan struct{}, 1), others: make(chan struct{}, 1)}, time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					for i := 0; ctx.Err() == nil; i++ {
						c.changes[min(i, len(c.changes)-1)](s)
						select {
						case <-time.After(step):
						case <-ctx.Done():
						}
					}
				}()
				if over, took := s.wait(ctx), time.Since(began); !over || took != c.want {
					t.Errorf("%v after %v, want %v", over, took, c.want)
				}
			})
		})
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if (&Source{clock: clock.RealClock{}}).wait(ctx) {
		t.Error("a State after the end")
	}
}

// silent is a network that answers nothing: a connection is given up after half a minute.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(30 * time.Second):
		return nil, os.ErrDeadlineExceeded
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestSilentAPIServer: an API server whose packets are dropped counts as away with the first attempt to reach it,
// although the client makes eleven before it returns.
func TestSilentAPIServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	fatal.If(t, os.WriteFile(file, []byte("{clusters: [{name: c, cluster: {server: 'http://192.0.2.1'}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		config, err := Connect(file)
		fatal.If(t, err)
		config.Transport = silent{}
		client, err := kubernetes.NewForConfig(config)
		fatal.If(t, err)
		pods := client.CoreV1().Pods("")
		f := &listWatch{name: "pods", link: newLink(slog.New(slog.DiscardHandler), time.Now), after: time.After, requests: newRequests(client, unfiltered, pods.List, pods.Watch)}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go func() { _, _ = f.watchNoted(ctx, metav1.ListOptions{}) }()
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if f.link.health().Disconnected.IsZero() {
			t.Error("the API server counts as available")
		}
	})
}
