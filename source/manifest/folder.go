package manifest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxFile bounds one file. 10,000 policies of some size are a few MiB.
const maxFile = 64 << 20

// folder has the objects of a folder's files, as of when each was last whole.
type folder struct {
	path    string
	decoder *decoder
	files   map[string]*file // by path
	err     *FileError       // of the folder itself
}

type file struct {
	path    string
	sum     [sha256.Size]byte // of the text that was read last
	objects []Object          // of the text that was last whole
	err     *FileError
}

var errEmptied = errors.New("the file holds no object any more; what it last held stays in force, delete the file to remove it")

func (f *folder) sorted() []*file {
	files := make([]*file, 0, len(f.files))
	for _, file := range f.files {
		files = append(files, file)
	}
	slices.SortFunc(files, func(a, b *file) int { return strings.Compare(a.path, b.path) })
	return files
}

// scan reads the folder again and tells whether anything changed. New errors get the time
// now. When ctx ends it stops immediately, and the current file stays as it was.
func (f *folder) scan(ctx context.Context, now time.Time) bool {
	names, err := manifestNames(f.path)
	changed := setError(&f.err, f.path, err, now)
	if err != nil {
		return changed // the last content of the files stays
	}
	present := map[string]bool{}
	for _, path := range names {
		if ctx.Err() != nil {
			return changed
		}
		text, err := readFile(path)
		if errors.Is(err, errNoFile) {
			continue
		}
		present[path] = true
		changed = f.accept(ctx, path, text, err, now) || changed
	}
	for path := range f.files {
		if !present[path] {
			delete(f.files, path)
			changed = true
		}
	}
	return changed
}

// accept takes over the content of a file, and tells whether that changes anything.
func (f *folder) accept(ctx context.Context, path string, text []byte, err error, now time.Time) bool {
	var sum [sha256.Size]byte
	if err == nil {
		sum = sha256.Sum256(text)
	}
	known := f.files[path]
	if known == nil {
		known = &file{path: path}
	} else if err == nil && sum == known.sum {
		return false
	}
	var objects []Object
	if err == nil {
		objects, err = f.decoder.file(ctx, path, text)
	}
	if ctx.Err() != nil {
		return false
	}
	f.files[path], known.sum = known, sum
	if err == nil && len(objects) == 0 && len(known.objects) > 0 {
		err = errEmptied
	}
	changed := setError(&known.err, path, err, now)
	if err == nil {
		known.objects = objects
		return true
	}
	return changed
}

// setError sets at to err and tells whether that is a change. A repeated error keeps its
// time.
func setError(at **FileError, path string, err error, now time.Time) bool {
	was := *at
	switch {
	case err == nil:
		*at = nil
		return was != nil
	case was != nil && was.Reason == err.Error():
		return false
	case was != nil:
		now = was.Since
	}
	*at = &FileError{File: path, Reason: err.Error(), Since: now}
	return true
}

// manifestNames returns the paths of the folder's files that may be manifests.
func manifestNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder: %w", err)
	}
	var paths []string
	for _, e := range entries {
		name := e.Name()
		ext := strings.ToLower(filepath.Ext(name))
		if !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml" || ext == ".json") {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths, nil
}

// errNoFile: the name in the folder is no file, or no longer.
var errNoFile = errors.New("no file")

// readFile returns the text of a file, errNoFile for a folder or a file that is gone
// meanwhile. A link that leads nowhere is an error: its target may be
// about to be replaced.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, errNoFile
		}
		return nil, errors.New("the link leads nowhere")
	}
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errNoFile
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%v is not a regular file", info.Mode().Type())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("the file is over %d bytes; split it", maxFile)
	}
	return text, err
}
