package handover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// namespaceLock is the name of the lock, in the abstract space of unix sockets, that one
// agent holds in each network namespace. The kernel's objects and these names belong to
// the namespace. The kernel frees the lock when the process ends.
const namespaceLock = "@namegate-agent"

// errTaken: another agent has the node.
var errTaken = errors.New("another agent runs")

// Lock is held by the agent that has a node.
type Lock struct {
	socket    string
	namespace string
}

// NewLock returns the lock of the agents with this socket, in this network namespace.
func NewLock(socket string) Lock { return Lock{socket, namespaceLock} }

// Claim reserves the socket's path and the network namespace for one agent, until
// release. It fails immediately if another agent has one of them.
func (l Lock) Claim() (release func(), err error) {
	path, err := claimPath(l.socket)
	if err != nil {
		return nil, err
	}
	name, err := claimName(l.namespace)
	if err != nil {
		path()
		return nil, err
	}
	return sync.OnceFunc(func() { name(); path() }), nil
}

// claimNext makes this agent the next one, if none is.
func (l Lock) claimNext() (release func(), err error) { return claimPath(l.socket + ".standby") }

// hasNext tells whether an agent stands by.
func (l Lock) hasNext() bool {
	release, err := l.claimNext()
	if err == nil {
		release()
	}
	return errors.Is(err, errTaken)
}

func claimPath(socket string) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the socket: %w", err)
	}
	f, err := os.OpenFile(socket+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock socket %s: %w", socket, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w with socket %s; stop it first", errTaken, socket)
		}
		return nil, fmt.Errorf("lock socket %s: %w", socket, err)
	}
	return func() { f.Close() }, nil
}

// claimName binds a socket to the name and does not listen on it.
func claimName(name string) (release func(), err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("lock the network namespace: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		_ = unix.Close(fd)
		if errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("%w in this network namespace, with another --socket; stop it first", errTaken)
		}
		return nil, fmt.Errorf("lock the network namespace: %w", err)
	}
	return func() { _ = unix.Close(fd) }, nil
}
