package agent

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestFilesOfConnections: the defaults need the files that containers have on usual nodes; with fewer files there are
// fewer connections, and at least one.
func TestFilesOfConnections(t *testing.T) {
	all := corefile.Default().ServerNames
	fewer := func(connections, perPod, hellos, hellosPerPod int) corefile.ServerNames {
		return corefile.ServerNames{Port: all.Port, RelayLimits: corefile.RelayLimits{Connections: connections, ConnectionsPerPod: perPod, Hellos: hellos, HellosPerPod: hellosPerPod}, Grace: all.Grace}
	}
	for limit, want := range map[uint64]corefile.ServerNames{
		1 << 20:       all,
		1 << 16:       all,
		5120 + 6*8192: all,
		5119 + 6*8192: fewer(8191, 1024, 1024, 64),
		8192:          fewer(682, 682, 682, 64),
		1024:          fewer(85, 85, 85, 64),
		3:             fewer(1, 1, 1, 1),
		0:             fewer(1, 1, 1, 1),
	} {
		got, need := fitFiles(all, 1024, limit)
		diff.Error(t, want, got, "with", limit, "files")
		diff.Equal(t, uint64(5120+6*8192), need, "needed")
	}
}

// TestSoftLimitOfFiles: the runtime raises the soft limit, which is 1024 in many containers, to the hard one.
func TestSoftLimitOfFiles(t *testing.T) {
	var l unix.Rlimit
	fatal.If(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &l))
	diff.Equal(t, l.Max, l.Cur, "the soft limit")
}
