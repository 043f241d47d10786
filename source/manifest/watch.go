package manifest

import (
	"fmt"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// watch reports changes in and around a folder.
type watch interface {
	// paths returns the path of each change, "" where changes were lost. It is closed when
	// the watch ends by itself.
	paths() <-chan string
	// renew watches the folder that replaced the watched one.
	renew()
	close()
}

// notifyWatch watches the folder and its parent: the parent reports that the folder itself
// is replaced, also where it is a symbolic link.
type notifyWatch struct {
	dir    string
	w      *fsnotify.Watcher
	out    chan string
	done   chan struct{}
	closed sync.Once
}

// remedy is what helps most often where a folder cannot be watched.
const remedy = "if other programs use up the watches, raise fs.inotify.max_user_instances and fs.inotify.max_user_watches"

func newWatch(dir string) (*notifyWatch, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w; "+remedy, dir, err)
	}
	n := &notifyWatch{dir: dir, w: w, out: make(chan string), done: make(chan struct{})}
	for _, path := range []string{dir, filepath.Dir(dir)} {
		if err := w.Add(path); err != nil && path == dir {
			n.close()
			return nil, fmt.Errorf("watching %s: %w; "+remedy, dir, err)
		}
	}
	go n.forward()
	return n, nil
}

func (n *notifyWatch) paths() <-chan string { return n.out }

// forward runs until close is called or the watcher ends.
func (n *notifyWatch) forward() {
	defer close(n.out)
	for {
		var path string
		select {
		case e, ok := <-n.w.Events:
			if !ok {
				return
			}
			path = e.Name
		case _, ok := <-n.w.Errors: // events were lost
			if !ok {
				return
			}
		}
		select {
		case n.out <- path:
		case <-n.done:
			return
		}
	}
}

// renew adds the folder's watch again: the old one ended with the old folder, or
// follows it to its new name. Where there is no folder now, its parent
// reports when there is one.
func (n *notifyWatch) renew() {
	// Both fail where there is nothing to remove or to add, which is fine.
	_ = n.w.Remove(n.dir)
	_ = n.w.Add(n.dir)
}

func (n *notifyWatch) close() {
	n.closed.Do(func() {
		close(n.done)
		_ = n.w.Close()
	})
}
