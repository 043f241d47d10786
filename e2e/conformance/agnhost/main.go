package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// subcommands are the programs of the image.
var subcommands = map[string]func(flags *flag.FlagSet, args []string) error{
	"pause":          func(*flag.FlagSet, []string) error { return wait() },
	"serve-hostname": serveHostname,
	"netexec":        netexec,
	"porter":         porter,
	"connect":        connect,
	"echo":           echo,
	"sweep":          sweep,
	"hold":           hold,
	"holding":        holding,
	"state":          state,
	"lookup":         lookup,
	"dns":            serveDNS,
	"record":         record,
}

// run runs a command line, whose first word is the program.
func run(words []string) error {
	if len(words) == 3 && filepath.Base(words[0]) == "bash" && words[1] == "-c" {
		words = strings.Fields(words[2])
	}
	if len(words) < 2 || subcommands[words[1]] == nil {
		return fmt.Errorf("unknown command %q", words)
	}
	return subcommands[words[1]](flag.NewFlagSet(words[1], flag.ContinueOnError), words[2:])
}

// wait returns when the pod is to end: a first process is not ended by a signal that it does
// not handle.
func wait() error {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
	return nil
}

// one returns the only argument.
func one(args []string, what string) (string, error) {
	if len(args) != 1 {
		return "", fmt.Errorf("UNKNOWN: %d arguments; write one, %s", len(args), what)
	}
	return args[0], nil
}

func show(result any) error { return json.NewEncoder(os.Stdout).Encode(result) }

// list is a flag that can be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	*l = append(*l, s)
	return nil
}
