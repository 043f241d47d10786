package agent

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/proxy/corefile"
)

const (
	// relayFiles are the open files of a relayed connection: two sockets, and the pipe of each direction.
	relayFiles = 6
	// otherFiles are those of an agent without connections of pods.
	otherFiles = 4096
)

// boundFiles returns the bounds of relayed connections, lowered to what the limit of open files has room for, and
// says so in low. The Go runtime has raised the soft limit to the hard one.
func boundFiles(c *corefile.Config) (n corefile.ServerNames, low error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return c.ServerNames, fmt.Errorf("read the limit of open files: %w", err)
	}
	n, need := fitFiles(c.ServerNames, c.Limits.Connections, limit.Cur)
	if n != c.ServerNames {
		low = fmt.Errorf("the limit of open files is %d, and %d connections need %d: there are at most %d; raise the limit (LimitNOFILE of the container runtime, "+
			"or ulimit -n), or lower connections in the block servernames of the Corefile", limit.Cur, c.ServerNames.Connections, need, n.Connections)
	}
	return n, low
}

// fitFiles returns the bounds that a limit of open files has room for, beside the TCP connections for DNS, and
// the limit that all need.
func fitFiles(n corefile.ServerNames, dns int, limit uint64) (_ corefile.ServerNames, need uint64) {
	others := uint64(otherFiles + dns)
	need = others + relayFiles*uint64(n.Connections)
	if limit < need {
		others = min(others, limit/2) // with so few files, half are left
		n.Connections = max(1, int((limit-others)/relayFiles))
		n.ConnectionsPerPod = min(n.ConnectionsPerPod, n.Connections)
		n.Hellos = min(n.Hellos, n.Connections)
		n.HellosPerPod = min(n.HellosPerPod, n.Hellos)
	}
	return n, need
}
