// Testpod is the program of the test pods. What it finds out it prints as JSON.
//
//	testpod sleep                        run until killed
//	testpod serve NAME PORT…             echo servers on TCP and UDP
//	testpod health PORT                  a gRPC health check
//	testpod extend PORT CERT KEY TEXT    an admission webhook and an aggregated API
//	testpod dial tcp|udp ADDR:PORT       one connection
//	testpod hello ADDR:PORT NAME         the begin of TLS with a server name
//	testpod lookup NAME TYPE [SERVER [tcp|udp]]  one DNS question
//	testpod get tcp|udp NAME PORT        a question and a connection to the answer
//	testpod load [FLAG…] NAME…           DNS questions at a constant rate
//	testpod first NAME PORT              get over tcp, then sleep
//	testpod window ADDR:PORT TIME        connections from now on, then sleep
//
// Called curl, ping or sleep, it is one of these programs of the documents' examples: curl [FLAG…] URL
// connects, ping [FLAG…] HOST waits for one echo reply, and sleep TIME runs until killed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/namegate/namegate/e2e/cluster/echo"
	"github.com/namegate/namegate/e2e/cluster/probe"
)

func main() {
	if err := named(filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testpod:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: testpod sleep | serve NAME PORT… | health PORT | extend PORT CERT KEY TEXT | dial NETWORK ADDR:PORT | hello ADDR:PORT NAME | lookup NAME TYPE [SERVER [NETWORK]] | get NETWORK NAME PORT | load [FLAG…] NAME… | first NAME PORT | window ADDR:PORT TIME")

// named runs the program that the name says.
func named(name string, args []string) error {
	switch name {
	case "curl":
		return curl(args)
	case "ping":
		return ping(args)
	case "sleep":
		return sleep()
	}
	return run(args)
}

func run(args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	ctx := context.Background()
	verb, args := args[0], args[1:]
	switch {
	case verb == "sleep" && len(args) == 0:
		return sleep()
	case verb == "serve" && len(args) > 1:
		return serve(args[0], args[1:])
	case verb == "health" && len(args) == 1:
		return health(args[0])
	case verb == "extend" && len(args) == 4:
		return extend(args[0], args[1], args[2], args[3])
	case verb == "dial" && len(args) == 2:
		return show(probe.Dial(ctx, args[0], args[1]))
	case verb == "hello" && len(args) == 2:
		return show(probe.Hello(ctx, args[0], args[1]))
	case verb == "lookup" && len(args) == 2:
		return show(probe.Lookup(ctx, "udp", args[0], args[1], ""))
	case verb == "lookup" && len(args) == 3:
		return show(probe.Lookup(ctx, "udp", args[0], args[1], args[2]))
	case verb == "lookup" && len(args) == 4:
		return show(probe.Lookup(ctx, args[3], args[0], args[1], args[2]))
	case verb == "get" && len(args) == 3:
		port, err := strconv.Atoi(args[2])
		if err != nil {
			return fmt.Errorf("port: %w", err)
		}
		return show(probe.Get(ctx, args[0], args[1], port))
	case verb == "first" && len(args) == 2:
		return errors.Join(run(append([]string{"get", "tcp"}, args...)), sleep())
	case verb == "window" && len(args) == 2:
		length, err := time.ParseDuration(args[1])
		if err != nil {
			return fmt.Errorf("window: %w", err)
		}
		return errors.Join(show(probe.Watch(ctx, args[0], length)), sleep())
	case verb == "load":
		return load(ctx, args)
	}
	return errUsage
}

func load(ctx context.Context, args []string) error {
	l, err := probe.ParseLoad(args)
	if err != nil {
		return err
	}
	result, err := l.Run(ctx)
	if err != nil {
		return err
	}
	return show(result)
}

func serve(name string, ports []string) error {
	for _, word := range ports {
		port, err := strconv.Atoi(word)
		if err != nil {
			return fmt.Errorf("port: %w", err)
		}
		if err := echo.Serve(name, port); err != nil {
			return err
		}
	}
	return sleep()
}

// sleep runs until a signal: as a pod's first process the program would not be
// ended by one that it does not handle.
func sleep() error {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
	return nil
}

func show(result any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(result)
}
