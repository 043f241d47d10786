package manifest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"time"
)

// Read returns the state of files and folders together, once, with every pod
// local. A file that is named is read whatever its name ends in. Broken files are in
// the state's FileErrors; the error is for a path that does not exist.
func Read(paths ...string) (State, error) {
	ctx := context.Background()
	d, err := newDecoder("")
	if err != nil {
		return State{}, err
	}
	all := folder{decoder: d, files: map[string]*file{}}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return State{}, fmt.Errorf("reading manifests: %w", err)
		}
		if !info.IsDir() {
			text, err := readFile(path)
			all.accept(ctx, path, text, err, time.Time{})
			continue
		}
		f := folder{path: path, decoder: d, files: map[string]*file{}}
		f.scan(ctx, time.Time{})
		if f.err != nil {
			return State{}, f.err
		}
		maps.Copy(all.files, f.files)
	}
	return all.state(), nil
}
