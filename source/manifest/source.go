package manifest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// How a Source waits. Writing a file takes several steps, and each is an event:
// a change is applied when QuietDelay has passed without another, at the latest
// MostDelay after the first. Where no event comes (some network file systems)
// the folder is read each RescanPeriod.
const (
	QuietDelay   = 100 * time.Millisecond
	MostDelay    = time.Second
	RescanPeriod = 30 * time.Second
)

// Source reads policies, namespaces and pods from a folder and watches its changes.
type Source struct {
	dir    string
	log    *slog.Logger
	folder folder
}

// New returns a source for the folder dir, which must exist, on a node: pods of other nodes are known
// but not local. Without the name of the node every pod is local.
func New(dir, node string, log *slog.Logger) (*Source, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("folder of manifests %s: %w", dir, err)
	}
	s := &Source{dir: absolute, log: log}
	switch info, err := os.Stat(s.dir); {
	case err != nil:
		return nil, fmt.Errorf("folder of manifests: %w; create it or name another one", err)
	case !info.IsDir():
		return nil, fmt.Errorf("folder of manifests: %s is a file; name the folder that it is in", s.dir)
	}
	d, err := newDecoder(node)
	if err != nil {
		return nil, err
	}
	s.folder = folder{path: s.dir, decoder: d, files: map[string]*file{}}
	return s, nil
}

// Run calls receive with the state of the folder, at once and after each change,
// until ctx ends; then it returns nil. It calls receive from this goroutine, and
// reads nothing meanwhile. It returns an error if the folder cannot be watched.
// A Source is run once.
func (s *Source) Run(ctx context.Context, receive func(State)) error {
	w, err := watch(s.dir)
	if err != nil {
		return err
	}
	defer w.Close()
	s.apply(ctx, receive, true)
	for {
		if err := s.wait(ctx, w); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		// The watch of the folder ended with it, or follows it to a new name. Both calls fail where there is nothing
		// to remove or to add: the watch of the parent reports the next folder.
		_ = w.Remove(s.dir)
		_ = w.Add(s.dir)
		s.apply(ctx, receive, false)
	}
}

// apply reads the folder and emits its state if something changed and ctx has not ended.
func (s *Source) apply(ctx context.Context, receive func(State), first bool) {
	changed := s.folder.scan(ctx, time.Now())
	if ctx.Err() != nil || !changed && !first {
		return
	}
	state := s.folder.state()
	for _, e := range state.FileErrors {
		s.log.Error("manifest not applied, its last good content stays in force", "file", e.File, "reason", e.Reason)
	}
	for _, p := range state.Problems {
		s.log.Warn("manifest object left out", "object", p.Object, "reason", p.Reason, "path", p.Path, "message", p.Message)
	}
	s.log.Info("manifests read", "dir", s.dir, "files", len(s.folder.files), "policies", len(state.Input.Policies),
		"pods", len(state.Input.Pods), "broken", len(state.FileErrors))
	receive(state)
}

// wait returns when it is time to read the folder again, or when ctx ended. It
// returns an error if the watch broke.
func (s *Source) wait(ctx context.Context, w *fsnotify.Watcher) error {
	var quiet, most <-chan time.Time
	rescan := time.After(RescanPeriod)
	for {
		path, ok := s.dir, false
		select {
		case <-ctx.Done():
			return nil
		case <-rescan:
			return nil
		case <-quiet:
			return nil
		case <-most:
			return nil
		case e, open := <-w.Events:
			path, ok = e.Name, open
		case _, ok = <-w.Errors: // changes were lost
		}
		switch {
		case !ok:
			return fmt.Errorf("watching %s: the watch ended", s.dir)
		case path != s.dir && filepath.Dir(path) != s.dir:
			continue // a neighbour of the folder
		case most == nil:
			most = time.After(MostDelay)
		}
		quiet = time.After(QuietDelay)
	}
}

// watch watches a folder and its parent: the parent reports that the folder itself is replaced, also where
// it is a symbolic link.
func watch(dir string) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		_ = w.Add(filepath.Dir(dir)) // without it the folder is found again at the next rescan
		if err = w.Add(dir); err != nil {
			_ = w.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w; if other programs use up the watches, raise fs.inotify.max_user_instances and fs.inotify.max_user_watches", dir, err)
	}
	return w, nil
}
