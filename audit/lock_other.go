//go:build !unix

package audit

import "os"

// lock tells that no lock is held: agents run on Linux alone.
func (*file) lock() bool { return false }

func (*file) unlock(*os.File) {}
