package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

func dirOf(path string) string { return filepath.Dir(path) }

// socketServer answers the other commands.
type socketServer struct {
	server *http.Server
	path   string
	file   os.FileInfo // of path
}

// serveSocket listens on a unix socket that root alone can open. A socket that is
// there is replaced in one step, so that nobody finds none.
func serveSocket(path string, handler http.Handler) (*socketServer, error) {
	if err := os.MkdirAll(dirOf(path), 0o700); err != nil {
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
	l.SetUnlinkOnClose(false) // it knows the first name alone
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
	return &socketServer{s, path, file}, nil
}

// close ends the answers and takes the socket away, unless another took its place.
func (s *socketServer) close() {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		_ = os.Remove(s.path)
	}
	s.server.Close()
}

// get asks who listens at a socket, and returns what it says, whatever its status.
func get(ctx context.Context, socket, path string) ([]byte, error) {
	client := http.Client{Timeout: answerTime, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("no agent at socket %s; is it running on this node? (--socket names another)", socket)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("socket %s is root's; run this as root", socket)
	case err != nil:
		return nil, fmt.Errorf("ask the agent at %s: %w", socket, err)
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
