package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Etc is a folder whose files stand in for the machine's of the same name below
// /etc, for programs that read there whom to ask.
type Etc string

// WriteEtc writes the files of a pod's /etc that decide about names, as a kubelet
// does for a pod of namespace shop: the resolver to ask, its search path, and
// nothing but files and DNS. The folder has to be there.
func WriteEtc(dir, nameserver string) (Etc, error) {
	for name, text := range map[string]string{
		"resolv.conf":   "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver " + nameserver + "\noptions ndots:5\n",
		"nsswitch.conf": "hosts: files dns\n",
		"hosts":         "127.0.0.1 localhost\n::1 localhost\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return Etc(dir), nil
}

// mountEtc binds the files over those of /etc, in a mount namespace that ends with
// the program: nothing is left behind, however that ends.
const mountEtc = `for f in "$1"/*; do mount --bind "$f" "/etc/${f##*/}" || exit 125; done; shift; exec "$@"`

// programLimit is how long RunIn lets a program run.
const programLimit = 2 * time.Minute

// RunIn runs a program in the host with an /etc of its own and returns what it
// printed. The error of a program that says no is an *exec.ExitError.
func (h *Host) RunIn(etc Etc, program ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), programLimit)
	defer cancel()
	var out []byte
	err := h.Do(func() error {
		var err error
		out, err = etc.command(ctx, program).CombinedOutput()
		return err
	})
	if ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		err = fmt.Errorf("%s: %s: %w: %s", h.Name, strings.Join(program, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), err
}

// command returns a program with this /etc.
func (e Etc) command(ctx context.Context, program []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "sh", "-c", mountEtc, "sh", string(e)}, program...)...)
	cmd.WaitDelay = time.Second
	return cmd
}

// Program is a running program that answers each line of its input with a line.
type Program struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err bytes.Buffer
}

// StartIn starts a program in the host with an /etc of its own. It is killed at the end of ctx.
func (h *Host) StartIn(ctx context.Context, etc Etc, program ...string) (*Program, error) {
	p := &Program{cmd: etc.command(ctx, program)}
	p.cmd.Stderr = &p.err
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, bufio.NewReader(out)
	if err := h.Do(p.cmd.Start); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", h.Name, strings.Join(program, " "), err)
	}
	return p, nil
}

// Ask writes a line and returns the program's answer.
func (p *Program) Ask(line string) (string, error) {
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		return "", p.failed(err)
	}
	answer, err := p.out.ReadString('\n')
	if err != nil {
		return "", p.failed(err)
	}
	return strings.TrimSpace(answer), nil
}

// failed ends the program, so that its messages are complete.
func (p *Program) failed(err error) error {
	return fmt.Errorf("%s: %w: %s", p.cmd.Path, errors.Join(err, p.End()), strings.TrimSpace(p.err.String()))
}

// End closes the program's input and waits for its end.
func (p *Program) End() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }
