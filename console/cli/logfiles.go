package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
)

// logLines reads lines of the audit log, and reports those that are left out. Several readers
// may be read at once.
type logLines struct {
	mu   sync.Mutex // of taking a line, and of the counts
	errs io.Writer
	bad  int    // lines that are none
	lost uint64 // lines that the agents say are missing
}

// read takes all lines of a reader, that is called so in messages. A line of which take returns
// an error is left out.
func (l *logLines) read(name string, r io.Reader, take func(audit.Line) error) error {
	return audit.Read(r, func(line audit.Line) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := take(line); err != nil {
			l.leave(name, err)
		}
		return nil
	}, func(number int, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		where, gap := fmt.Sprintf("%s:%d", name, number), (*audit.Gap)(nil)
		if errors.As(err, &gap) {
			l.lost += gap.Count
			l.say("%s: %v", where, err)
			return
		}
		l.leave(where, err)
	})
}

// maxBadLines bounds how many bad lines are named; the rest is counted.
const maxBadLines = 5

func (l *logLines) leave(where string, err error) {
	if l.bad++; l.bad <= maxBadLines {
		l.say("%s: left out: %v", where, err)
	}
}

func (l *logLines) say(format string, args ...any) {
	fmt.Fprintln(l.errs, "namegate: "+console.OneLine(fmt.Sprintf(format, args...))) //nolint:errcheck // there is no other output
}

// eachLog calls read with each of the logs, "-" for the standard input. The error is for a missing
// file, before any is read; its message ends in what else to write. broken is what could not be
// read to its end.
func eachLog(cmd *cobra.Command, paths []string, instead string, say func(string, ...any), read func(name string, r io.Reader) error) (broken, err error) {
	open := make([]io.Reader, len(paths))
	for i, path := range paths {
		if path == "-" {
			open[i] = cmd.InOrStdin()
			continue
		}
		f, err := os.Open(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("there is no file %s; write the path of an audit log, - for the standard input, %s", path, instead)
		case err != nil:
			return nil, fmt.Errorf("read the log: %w", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		open[i] = f
	}
	for i, path := range paths {
		if err := read(path, interruptible(ctxOf(cmd), open[i])); err != nil {
			say("%s cannot be read to its end: %v", path, err)
			broken = errors.Join(broken, fmt.Errorf("read %s: %w", path, err))
		}
	}
	return broken, nil
}
