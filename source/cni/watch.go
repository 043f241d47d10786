package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// Retry is how long a Watcher waits before it watches again a folder that it could not
// watch, or that was replaced.
const Retry = 10 * time.Second

// Watcher watches the results of a node. Make it with New.
type Watcher struct {
	dir   string
	log   *slog.Logger
	clock clock.Clock
	// booted returns when the machine was started, by its clock of now.
	booted func() (time.Time, error)
	// files are the results that name a pod, by the name of their file.
	files map[string]result
}

type result struct {
	uid string
	Sandbox
	modified time.Time // of the file
	// written orders the results of one pod, with Since: modified, or zero once modified was in the
	// future.
	written time.Time
}

// New returns a Watcher of dir, /var/lib/cni/results on most nodes.
func New(dir string, log *slog.Logger, c clock.Clock) *Watcher {
	return &Watcher{dir: filepath.Clean(dir), log: log, clock: c, booted: booted, files: map[string]result{}}
}

// Run calls changed with all results at first and after each change, from this goroutine,
// until ctx ends. While the folder cannot be watched, there are no results.
func (w *Watcher) Run(ctx context.Context, changed func(Results)) {
	told := ""
	for {
		err := w.follow(ctx, func(r Results) {
			told = ""
			changed(r)
		})
		if ctx.Err() != nil {
			return
		}
		clear(w.files)
		changed(nil)
		if text := fmt.Sprint(err); text != told {
			told = text
			w.log.Warn("the results of network plugins cannot be watched: a new pod is known only when its kubelet publishes its address", "folder", w.dir, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.clock.After(Retry):
		}
	}
}

// errReplaced: the watched folder is gone.
var errReplaced = errors.New("the folder was removed or replaced")

// follow watches until ctx ends or the folder is gone.
func (w *Watcher) follow(ctx context.Context, changed func(Results)) error {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.dir, err)
	}
	defer n.Close()
	if err := n.Add(w.dir); err != nil {
		return fmt.Errorf("watch %s: %w", w.dir, err)
	}
	if err := w.readAll(); err != nil {
		return err
	}
	changed(w.results())
	for {
		var news bool
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-n.Events:
			switch {
			case !ok:
				return errReplaced
			case e.Name == w.dir && e.Op&(fsnotify.Remove|fsnotify.Rename) != 0:
				return errReplaced
			case e.Name == w.dir:
				continue
			}
			news = w.read(filepath.Base(e.Name))
		case err := <-n.Errors: // events were lost
			w.log.Warn("reading all results of network plugins again", "folder", w.dir, "error", err)
			if err := w.readAll(); err != nil {
				return err
			}
			news = true
		}
		if news {
			changed(w.results())
		}
	}
}

// readAll reads the folder.
func (w *Watcher) readAll() error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return fmt.Errorf("read the results of network plugins: %w", err)
	}
	clear(w.files)
	for _, e := range entries {
		w.read(e.Name())
	}
	return nil
}

// read reads a file, and tells whether the results changed. A file that is being written
// cannot be read yet; its next event follows.
func (w *Watcher) read(name string) (news bool) {
	path := filepath.Join(w.dir, name)
	before, known := w.files[name]
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		delete(w.files, name)
		return known
	}
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(path)
	}
	var r result
	if err == nil {
		r.uid, r.Addrs, err = parse(text)
	}
	if err != nil {
		w.log.Debug("a result of a network plugin cannot be read", "file", path, "error", err)
		return false
	}
	if r.uid == "" {
		delete(w.files, name)
		return known
	}
	r.modified = info.ModTime()
	r.written, r.Since = r.modified, r.modified.Unix()
	same := known && before.uid == r.uid && before.modified.Equal(r.modified) && slices.Equal(before.Addrs, r.Addrs)
	if !same {
		w.files[name] = r
	}
	return !same
}

// booted returns when the machine was started.
func booted() (time.Time, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return time.Time{}, fmt.Errorf("read how long the machine runs: %w", err)
	}
	return time.Now().Add(-time.Duration(t.Nano())), nil
}

// results returns the last sandbox of each pod, in a new map. No sandbox outlives the machine's
// start, and a result does where the runtime does not remove it.
//
// A file from the future is of before the clock was set back. It may be left over from an earlier
// sandbox, and would count as the last one. So every other result of the pod, and every status of it with
// addresses, counts more, also after the clock has passed the file's time.
func (w *Watcher) results() Results {
	now := w.clock.Now()
	boot, err := w.booted()
	if err != nil {
		w.log.Warn("results of network plugins may be of before the machine was started", "error", err)
	}
	out, last := make(Results, len(w.files)), map[string]result{}
	for name, r := range w.files {
		if r.modified.Before(boot) {
			continue
		}
		if r.written.After(now) {
			r.written, r.Since = time.Time{}, 0
			w.files[name] = r
		}
		if other, there := last[r.uid]; !there || r.written.After(other.written) {
			last[r.uid], out[r.uid] = r, r.Sandbox
		}
	}
	return out
}
