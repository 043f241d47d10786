package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"
)

// lookEvery is the interval at which the writer checks that its file is still at the
// path, and retries a failed rotation.
const lookEvery = time.Second

// file is a sink that rotates by size. It belongs to the writer's goroutine.
type file struct {
	path   string
	limit  int64
	keep   int
	now    func() time.Time
	f      *os.File
	size   int64
	torn   bool // the last write ended in the middle of a line, which is still there
	fresh  bool // how the file ends is not known yet
	looked time.Time
	tries  int       // of another agent's lock, before a write goes on without it
	failed time.Time // of the last rotation that failed, zero if none did
}

// lockTries is how often an agent asks for the lock of another that writes to the same file.
const lockTries = 100

func openFile(o Options) (*file, error) {
	s := &file{path: o.Path, limit: o.Size, keep: o.Keep, now: o.Now, tries: lockTries}
	if err := s.reopen(); err != nil {
		return nil, fmt.Errorf("open the audit log: %w; make its folder or write another path", err)
	}
	return s, nil
}

// reopen opens the path and then closes the previous file. On an error the previous file
// stays in use.
func (s *file) reopen() error {
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	if s.f != nil {
		_ = s.f.Close()
	}
	s.f, s.size, s.torn, s.fresh = f, info.Size(), false, true
	s.looked = s.now()
	return nil
}

// cut tells whether the file ends in the middle of a line: an agent was killed during a
// write, or could not remove a line that a full disk had cut.
func (s *file) cut(size int64) bool {
	if size == 0 {
		return false
	}
	f, err := os.Open(s.path)
	if err != nil {
		return false
	}
	defer f.Close()
	var last [1]byte
	_, err = f.ReadAt(last[:], size-1)
	return err == nil && last[0] != '\n'
}

func (s *file) close() error { return s.f.Close() }

// write locks other agents out, so that neither agent takes the other's partial write for
// a cut line.
func (s *file) write(lines []byte) (whole int, err error) {
	s.look()
	locked, busy := s.lock()
	if locked {
		defer s.unlock(s.f)
	}
	// Beside another agent's write, the end of the file is a line that is not cut.
	if locked || s.fresh && !busy {
		s.grown()
	}
	if s.limit > 0 && s.size > 0 && s.size+int64(len(lines)) > s.limit {
		s.rotate()
	}
	if s.torn {
		// The rest of the cut line is lost; what follows must still be lines.
		if _, err := s.f.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		s.torn, s.size = false, s.size+1
	}
	n, err := s.f.Write(lines)
	s.size += int64(n)
	if err == nil {
		return n, nil
	}
	whole = bytes.LastIndexByte(lines[:n], '\n') + 1
	s.torn = n > whole && !s.truncate(n-whole)
	return whole, err
}

// grown looks at what others did to the file since the last write: it may be cut
// short, or another agent have been killed in the middle of a line.
func (s *file) grown() {
	info, err := s.f.Stat()
	if err != nil || info.Size() == s.size && !s.fresh {
		return
	}
	s.size, s.torn, s.fresh = info.Size(), s.cut(info.Size()), false
}

// truncate removes the end of the file that was just written, and tells whether it could:
// not if another agent has written behind it.
func (s *file) truncate(cut int) bool {
	end, err := s.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return false
	}
	if info, err := s.f.Stat(); err != nil || info.Size() != end || s.f.Truncate(end-int64(cut)) != nil {
		return false
	}
	s.size -= int64(cut)
	return true
}

// look opens the path again if the file was renamed or removed.
func (s *file) look() {
	now := s.now()
	if now.Sub(s.looked) < lookEvery {
		return
	}
	s.looked = now
	mine, err := s.f.Stat()
	if err != nil {
		return
	}
	if named, err := os.Stat(s.path); err == nil && os.SameFile(mine, named) {
		return
	}
	_ = s.reopen() // the open file stays in use
}

// rotate moves path to path.1, path.1 to path.2 and so on, and drops the oldest.
// If the move fails the file grows beyond its size until a later try succeeds:
// a line in too big a file is better than none.
func (s *file) rotate() {
	now := s.now()
	if !s.failed.IsZero() && now.Sub(s.failed) < lookEvery {
		return
	}
	if err := s.shift(); err != nil {
		s.failed = now
		return
	}
	s.failed = time.Time{}
	if err := s.reopen(); err != nil {
		s.failed = now
	}
}

func (s *file) shift() error {
	mine, err := s.f.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(mine, named) {
		return nil // moved already, by another agent perhaps, and only to be opened
	}
	if s.keep == 0 {
		return os.Remove(s.path)
	}
	for i := s.keep - 1; i >= 1; i-- {
		err := os.Rename(s.numbered(i), s.numbered(i+1))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Rename(s.path, s.numbered(1))
}

func (s *file) numbered(i int) string { return s.path + "." + strconv.Itoa(i) }
