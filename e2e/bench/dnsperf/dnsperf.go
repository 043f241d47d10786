// Package dnsperf runs Debian's dnsperf on hosts of a lab, and reads what it prints.
package dnsperf

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/namegate/namegate/e2e/lab"
)

// Run is one run of dnsperf.
type Run struct {
	Server netip.AddrPort
	// From is the source of the queries; the kernel chooses one for the zero address.
	From netip.Addr
	// File has the questions, one "NAME TYPE" a line. They are asked once, or with For
	// again and again for so long.
	File string
	For  time.Duration
	// Clients are the sockets, Outstanding the queries under way at most.
	Clients, Outstanding int
	// Rate bounds the queries a second; zero is as many as the server takes.
	Rate int
	// Each reads the latency of each answer.
	Each bool
}

// lossTimeout is after how long a query counts as lost, in seconds.
const lossTimeout = "2"

func (r Run) args() []string {
	args := []string{
		"-s", r.Server.Addr().String(), "-p", strconv.Itoa(int(r.Server.Port())), "-d", r.File, "-t", lossTimeout, "-b", "1024", "-W",
		"-c", strconv.Itoa(r.Clients), "-q", strconv.Itoa(r.Outstanding),
	}
	if r.From.IsValid() {
		args = append(args, "-a", r.From.String())
	}
	if r.For > 0 {
		args = append(args, "-l", strconv.FormatFloat(r.For.Seconds(), 'f', -1, 64))
	} else {
		args = append(args, "-n", "1")
	}
	if r.Rate > 0 {
		args = append(args, "-Q", strconv.Itoa(r.Rate))
	}
	if r.Each {
		args = append(args, "-v")
	}
	return args
}

// Result is what dnsperf counted.
type Result struct {
	Sent, Lost int
	// Good are the answers with NOERROR.
	Good int
	// Took is from the first query to the last answer.
	Took time.Duration
	// Latencies are those of the good answers of a Run with Each, in µs, ascending.
	Latencies []float64
	// CPU is the processor time of dnsperf.
	CPU time.Duration
}

// QPS is the good answers a second.
func (r Result) QPS() float64 { return float64(r.Good) / r.Took.Seconds() }

// On runs dnsperf on a host. An error is also a run without a good answer.
func (r Run) On(ctx context.Context, h *lab.Host) (Result, error) {
	cmd := exec.CommandContext(ctx, "dnsperf", r.args()...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := h.Do(cmd.Start); err != nil {
		return Result{}, fmt.Errorf("start dnsperf: %w", err)
	}
	err := cmd.Wait()
	if err != nil {
		return Result{}, fmt.Errorf("dnsperf at %s: %w\n%s", r.Server, err, out.String())
	}
	result, err := parse(out.String())
	if err == nil && result.Good == 0 {
		err = errors.New("no query got a good answer")
	}
	if err != nil {
		return result, fmt.Errorf("dnsperf at %s: %w\n%s", r.Server, err, out.String()[max(0, out.Len()-2000):])
	}
	result.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return result, nil
}

var (
	statistics = regexp.MustCompile(`(?s)Queries sent: +(\d+).*Queries lost: +(\d+).*Run time \(s\): +(\S+)`)
	noerror    = regexp.MustCompile(`NOERROR (\d+) \(`)
	latency    = regexp.MustCompile(`(?m)^> NOERROR \S+ \S+ (\S+)$`)
)

// parse reads the statistics at the end of dnsperf's output, and the latencies before them.
func parse(output string) (r Result, err error) {
	m := statistics.FindStringSubmatch(output)
	if m == nil {
		return r, errors.New("it printed no statistics")
	}
	seconds, err := strconv.ParseFloat(m[3], 64)
	if err != nil {
		return r, err
	}
	r.Took = time.Duration(seconds * float64(time.Second))
	if m = append(m, "0"); noerror.MatchString(output) {
		m[4] = noerror.FindStringSubmatch(output)[1]
	}
	if _, err := fmt.Sscan(m[1]+" "+m[2]+" "+m[4], &r.Sent, &r.Lost, &r.Good); err != nil {
		return r, err
	}
	for _, m := range latency.FindAllStringSubmatch(output, -1) {
		if seconds, err = strconv.ParseFloat(m[1], 64); err != nil {
			return r, err
		}
		r.Latencies = append(r.Latencies, seconds*1e6)
	}
	slices.Sort(r.Latencies)
	return r, nil
}

// WriteQuestions writes questions for the addresses of names: of IPv4, and with both of IPv6
// too.
func WriteQuestions(path string, count int, both bool, name func(n int) string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for n := range count {
		name := strings.TrimSuffix(name(n), ".")
		fmt.Fprintf(w, "%s A\n", name)
		if both {
			fmt.Fprintf(w, "%s AAAA\n", name)
		}
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		return fmt.Errorf("write questions: %w", err)
	}
	return nil
}
