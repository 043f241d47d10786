// Package dnsperf runs Debian's dnsperf and reads what it prints.
package dnsperf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Run is one run of dnsperf.
type Run struct {
	Server netip.AddrPort
	// File has the questions, one "NAME TYPE" a line.
	File string
	// Once ends the run with the file; otherwise it is read again until For ends.
	Once bool
	For  time.Duration
	// Clients are the sockets, Outstanding the queries under way at most.
	Clients, Outstanding int
	// Rate bounds the queries a second; zero is as many as the server takes.
	Rate int
}

// lossTimeout is after how long a query counts as lost, in seconds.
const lossTimeout = "2"

// Command returns the command line.
func (r Run) Command(ctx context.Context) *exec.Cmd {
	args := []string{
		"-s", r.Server.Addr().String(), "-p", strconv.Itoa(int(r.Server.Port())), "-d", r.File, "-t", lossTimeout, "-b", "1024", "-W",
		"-c", strconv.Itoa(r.Clients), "-q", strconv.Itoa(r.Outstanding),
	}
	if r.Once {
		args = append(args, "-n", "1")
	}
	if r.For > 0 {
		args = append(args, "-l", strconv.FormatFloat(r.For.Seconds(), 'f', -1, 64))
	}
	if r.Rate > 0 {
		args = append(args, "-Q", strconv.Itoa(r.Rate))
	}
	return exec.CommandContext(ctx, "dnsperf", args...)
}

// Result is what dnsperf counted.
type Result struct {
	Sent, Completed, Lost int
	// Good are the answers with NOERROR.
	Good int
	// Took is from the first query to the last answer.
	Took time.Duration
}

// QPS is the good answers a second.
func (r Result) QPS() float64 { return float64(r.Good) / r.Took.Seconds() }

// Parse reads the statistics at the end of dnsperf's output.
func Parse(output string) (Result, error) {
	var r Result
	seen := 0
	for line := range strings.Lines(output) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		var err error
		switch name {
		case "Queries sent":
			r.Sent, err = number(value)
		case "Queries completed":
			r.Completed, err = number(value)
		case "Queries lost":
			r.Lost, err = number(value)
		case "Response codes":
			r.Good, err = noerror(value)
		case "Run time (s)":
			var s float64
			s, err = strconv.ParseFloat(strings.TrimSpace(value), 64)
			r.Took = time.Duration(s * float64(time.Second))
		default:
			continue
		}
		if err != nil {
			return r, fmt.Errorf("dnsperf's %s: %w", name, err)
		}
		seen++
	}
	if seen != 5 || r.Took <= 0 {
		return r, errors.New("dnsperf printed no statistics")
	}
	return r, nil
}

// number reads the number that a value begins with: "100 (99.50%)".
func number(value string) (int, error) {
	fields := strings.Fields(value)
	if len(fields) == 0 {
		return 0, errors.New("is empty")
	}
	return strconv.Atoi(fields[0])
}

// noerror reads "NOERROR 4 (80.00%), SERVFAIL 1 (20.00%)".
func noerror(value string) (int, error) {
	for part := range strings.SplitSeq(value, ",") {
		if count, ok := strings.CutPrefix(strings.TrimSpace(part), "NOERROR "); ok {
			return number(count)
		}
	}
	return 0, nil
}
