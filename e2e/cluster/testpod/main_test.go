package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/cluster/echo"
	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"fly"}, {"sleep", "long"}, {"serve", "name"}, {"health"}, {"extend", "443"}, {"dial", "tcp"}, {"hold", "tcp", "192.0.2.1:1"}, {"lookup", "x"}, {"get", "tcp", "x"}, {"first", "x"}, {"window", "192.0.2.1:1"},
	} {
		if err := run(args); !errors.Is(err, errUsage) {
			t.Errorf("%v: %v, want the usage", args, err)
		}
	}
	for _, args := range [][]string{{"serve", "name", "http"}, {"health", "grpc-health"}, {"extend", "8443", "no certificate", "no key", "text"}, {"hold", "tcp", "192.0.2.1:1", "long"}, {"get", "tcp", "x.test", "http"}, {"load"}, {"window", "192.0.2.1:1", "long"}} {
		if err := run(args); err == nil || errors.Is(err, errUsage) {
			t.Errorf("%v: %v, want what is wrong", args, err)
		}
	}
}

// output returns what f prints.
func output(t *testing.T, f func() error) []byte {
	t.Helper()
	r, w, err := os.Pipe()
	fatal.If(t, err)
	stdout := os.Stdout
	os.Stdout = w
	err = f()
	os.Stdout = stdout
	w.Close()
	fatal.If(t, err)
	text, err := io.ReadAll(r)
	fatal.If(t, err)
	return text
}

func TestOutcomesArePrinted(t *testing.T) {
	s, err := echo.Serve("me", 0)
	fatal.If(t, err)
	defer s.Close()
	for _, args := range [][]string{
		{"dial", "tcp", fmt.Sprintf("127.0.0.1:%d", s.Port)},
		{"hold", "udp", fmt.Sprintf("127.0.0.1:%d", s.Port), "1ms"},
	} {
		var got probe.Dialled
		fatal.If(t, json.Unmarshal(output(t, func() error { return run(args) }), &got))
		if got.Class != probe.OK || got.Server != "me" {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// TestCurl: a URL is a connection to its host and port.
func TestCurl(t *testing.T) {
	s, err := echo.Serve("me", 0)
	fatal.If(t, err)
	t.Cleanup(func() { s.Close() })
	if err := named("curl", []string{"-sSI", fmt.Sprintf("http://127.0.0.1:%d/a", s.Port)}); err != nil {
		t.Error(err)
	}
	port := s.Port
	s.Close()
	if err := named("curl", []string{"-sSI", fmt.Sprintf("https://127.0.0.1:%d", port)}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
	if err := named("curl", nil); err == nil {
		t.Error("no error without a URL")
	}
}
