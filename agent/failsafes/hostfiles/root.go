package hostfiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Root is the root folder of a host.
type Root struct{ files fs.FS }

// New returns the root folder in files, as os.DirFS returns them. Symbolic links are followed
// inside it, absolute ones too.
func New(files fs.FS) Root { return Root{files} }

// The bounds of one file and of the links to it.
const (
	maxBytes = 1 << 20
	maxLinks = 40 // as Linux has it (path_resolution(7))
)

var errEmpty = errors.New("is empty")

var errReplaced = errors.New("was replaced on the host, and the mount has the earlier file; restart the agent's pod")

// read returns the text of a regular file. Without the file, or with a folder in its place,
// the error is fs.ErrNotExist.
func (r Root) read(name string) (string, error) {
	at, info, err := r.locate(name)
	if err != nil {
		return "", err
	}
	switch {
	case info.IsDir(): // a container runtime makes a folder of a mount whose source is missing
		return "", fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", name)
	}
	f, err := r.files.Open(at)
	if err != nil {
		return "", named(name, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	switch {
	case err != nil:
		return "", named(name, err)
	case len(text) > maxBytes:
		return "", fmt.Errorf("%s has more than %d KiB", name, maxBytes>>10)
	case replaced(f):
		return "", fmt.Errorf("%s %w", name, errReplaced)
	}
	return string(text), nil
}

// named returns an error of a file with the path of the host.
func named(name string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// replaced tells whether an open file has no name any more: a mount of a single file keeps
// the file that another one was renamed over.
func replaced(f fs.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Nlink == 0
}

// optional returns the text of a file, "" and false without it.
func (r Root) optional(name string) (text string, there bool, err error) {
	text, err = r.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	return text, err == nil, err
}

// first returns the first of the files that exists, and its text; "" for none.
func (r Root) first(names ...string) (name, text string, err error) {
	for _, name := range names {
		text, there, err := r.optional(name)
		if err != nil || there {
			return name, text, err
		}
	}
	return "", "", nil
}

// there tells whether a file, folder or link exists.
func (r Root) there(name string) bool {
	folder, _, err := r.locate(path.Dir(name))
	if err != nil {
		return false
	}
	_, err = fs.Lstat(r.files, path.Join(folder, path.Base(name)))
	return err == nil
}

// list returns the full names of the files of a folder that match a pattern, sorted; none
// without the folder.
func (r Root) list(folder, pattern string) (names []string, err error) {
	at, info, err := r.locate(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, nil
	}
	entries, err := fs.ReadDir(r.files, at)
	if err != nil {
		return nil, named(folder, err)
	}
	for _, e := range entries {
		if ok, err := path.Match(pattern, e.Name()); err == nil && ok && !e.IsDir() {
			names = append(names, path.Join(folder, e.Name()))
		}
	}
	slices.Sort(names)
	return names, nil
}

// layered returns the files of folders that match a pattern, sorted by their base names. Of
// files with one base name that of the earlier folder counts, as systemd and chrony have it.
func (r Root) layered(pattern string, folders ...string) (names []string, err error) {
	byBase := map[string]string{}
	for _, folder := range folders {
		found, err := r.list(folder, pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			if _, there := byBase[path.Base(name)]; !there {
				byBase[path.Base(name)] = name
				names = append(names, name)
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	return names, nil
}

// locate returns the path of a file inside the root with all links followed.
func (r Root) locate(name string) (at string, info fs.FileInfo, err error) {
	rest := strings.Split(path.Clean("/"+name), "/")
	at = "."
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at) // of "." too
			continue
		}
		next := path.Join(at, part)
		info, err := fs.Lstat(r.files, next)
		if errors.Is(err, syscall.ENOTDIR) {
			err = fs.ErrNotExist
		}
		if err != nil {
			return "", nil, named(name, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", nil, fmt.Errorf("%s leads through more than %d links", name, maxLinks)
		}
		target, err := fs.ReadLink(r.files, next)
		if err != nil {
			return "", nil, named(name, err)
		}
		if path.IsAbs(target) {
			at = "."
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	info, err = fs.Lstat(r.files, at)
	if err != nil {
		return "", nil, named(name, err)
	}
	return at, info, nil
}
