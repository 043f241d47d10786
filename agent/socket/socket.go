package socket

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Server answers at a socket.
type Server struct {
	server *http.Server
	path   string
	file   os.FileInfo // of path
}

// Serve listens at path, whose folder it makes. An existing socket is replaced in one
// step: at every moment a client finds one of the two.
func Serve(path string, handler http.Handler) (*Server, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the socket: %w", err)
	}
	next := path + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("replace socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: next, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // the listener knows the first name alone
	if err := errors.Join(os.Chmod(next, 0o600), os.Rename(next, path)); err != nil {
		l.Close()
		return nil, fmt.Errorf("put socket %s in place: %w", path, err)
	}
	file, err := os.Lstat(path)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("look at socket %s: %w", path, err)
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go s.Serve(l)
	return &Server{s, path, file}, nil
}

// Close ends the answers and removes the socket, unless another server replaced it.
func (s *Server) Close() {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		_ = os.Remove(s.path)
	}
	s.server.Close()
}
