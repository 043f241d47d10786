//go:build unix

package audit

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockAgain is after how long an agent asks again for the lock of another that writes to the same file.
const lockAgain = time.Millisecond

// lock waits until no other agent writes, and tells whether none does: a program that
// holds the file's lock for long does not keep lines from being written.
func (s *file) lock() (locked, busy bool) {
	for range s.tries {
		err := unix.Flock(int(s.f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return true, false
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return false, false // a file system without locks
		}
		time.Sleep(lockAgain)
	}
	return false, true
}

// unlock gives the lock of a file back, which may have been rotated meanwhile.
func (s *file) unlock(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
