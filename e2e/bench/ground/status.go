package ground

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// Status runs a benchmark, the verb of make, unless its command line is in error, until
// it is done or interrupted, and returns the exit status: 0 where everything was
// measured, whatever the figures are, 2 otherwise.
func Status(verb string, parsed error, notes io.Writer, measure func(context.Context) error) int {
	err := parsed
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
	case os.Geteuid() != 0:
		err = errors.New("it makes network namespaces; run it as root, for example: sudo make " + verb)
	default:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		err = measure(ctx)
	}
	if err != nil {
		fmt.Fprintln(notes, "bench: "+err.Error())
		return 2
	}
	return 0
}

// Choose returns the words of an option's list, all there are of an empty one.
func Choose(option, list string, all []string) ([]string, error) {
	if list == "" {
		return all, nil
	}
	words := strings.Split(list, ",")
	for _, w := range words {
		if !slices.Contains(all, w) {
			return nil, fmt.Errorf("%s %s is not known; write some of %s", option, w, strings.Join(all, ", "))
		}
	}
	return words, nil
}
