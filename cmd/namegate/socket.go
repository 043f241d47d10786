package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

func dirOf(path string) string { return filepath.Dir(path) }

// claim makes sure that one agent alone uses a socket path, for as long as it runs.
func claim(socket string) (release func(), err error) {
	if err := os.MkdirAll(dirOf(socket), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the socket: %w", err)
	}
	f, err := os.OpenFile(socket+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock socket %s: %w", socket, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another agent runs with socket %s; stop it, or give this one its own with --socket", socket)
		}
		return nil, fmt.Errorf("lock socket %s: %w", socket, err)
	}
	return func() { f.Close() }, nil
}

// socketServer answers the other commands.
type socketServer struct {
	server *http.Server
}

// serveSocket listens on a unix socket that root alone can open.
func serveSocket(path string, status func() any) (*socketServer, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("replace socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("close socket to others: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(status())
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go s.Serve(l)
	return &socketServer{s}, nil
}

func (s *socketServer) close() { s.server.Close() }
