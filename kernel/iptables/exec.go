package iptables

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// lockWait is how long iptables-restore waits for another program's lock on the
// legacy tables, in seconds. A pod that becomes selected stays as open as it was for as
// long; then it is closed by what needs no lock.
const lockWait = "2"

// Variant picks one of the two kernels' interfaces iptables can speak to.
type Variant string

// The variants. Default is whatever the host's iptables is.
const (
	Default Variant = ""
	Legacy  Variant = "legacy"
	NFT     Variant = "nft"
)

// Exec is the Interface that runs iptables-restore and iptables-save in the
// calling thread's network namespace.
type Exec struct {
	variant Variant
	// around makes each change of rules that are kept in nftables.
	around func(change func() error) error
}

var _ Interface = (*Exec)(nil)

// NewExec looks the four programs up. Where one is not installed, IsMissing
// holds for the error.
func NewExec(v Variant) (*Exec, error) {
	e := &Exec{variant: v, around: func(change func() error) error { return change() }}
	for _, f := range []Family{IPv4, IPv6} {
		for _, verb := range []string{"restore", "save"} {
			if _, err := exec.LookPath(e.program(f, verb)); err != nil {
				return nil, fmt.Errorf("%s: %w", e.program(f, verb), errMissing)
			}
		}
	}
	return e, nil
}

func (e *Exec) program(f Family, verb string) string {
	name := "iptables"
	if f == IPv6 {
		name = "ip6tables"
	}
	if e.variant != Default {
		name += "-" + string(e.variant)
	}
	if verb == "" {
		return name
	}
	return name + "-" + verb
}

// Restore implements Interface.
func (e *Exec) Restore(ctx context.Context, tx *Transaction) error {
	if tx.Empty() {
		return nil
	}
	return e.around(func() error {
		_, err := run(ctx, tx.String(), e.program(tx.Family, "restore"), "--noflush", "--wait", lockWait)
		if err != nil {
			return refused("restore", tx.Family, tx.Table, err)
		}
		return nil
	})
}

// Around lets f make the changes of rules that are kept in nftables.
func (e *Exec) Around(f func(change func() error) error) {
	if e.variant == NFT {
		e.around = f
	}
}

// CheckSets returns why rules cannot ask sets of ipset, nil if they can: iptables loads its match and asks the kernel
// for a set, of which it says that there is none. It writes nothing.
func (e *Exec) CheckSets(ctx context.Context) error {
	for _, f := range []Family{IPv4, IPv6} {
		program := e.program(f, "")
		_, err := run(ctx, "", program, "-m", "set", "--match-set", "namegate-none", "src", "-h")
		if err != nil && !strings.Contains(err.Error(), "Set namegate-none doesn't exist") {
			return fmt.Errorf("%s: the match set for sets of ipset: %w", program, err)
		}
	}
	return nil
}

// Save implements Interface.
func (e *Exec) Save(ctx context.Context, f Family, table string) (Chains, error) {
	out, err := run(ctx, "", e.program(f, "save"), "-t", table)
	if err != nil {
		return nil, refused("save", f, table, err)
	}
	return parseAll(out)[table], nil
}

// SaveAll implements Interface. Both families are printed at the same time: with
// thousands of rules each takes a tenth of a second.
func (e *Exec) SaveAll(ctx context.Context) (Everything, error) {
	all, programs := Everything{}, map[Family]*running{}
	for _, f := range []Family{IPv4, IPv6} {
		all[f] = map[string]Chains{}
		// Asking the legacy programs would load their kernel modules.
		if e.variant != Legacy || legacyTables(f) {
			programs[f] = start(ctx, "", e.program(f, "save"))
		}
	}
	var failed error
	for f, r := range programs {
		out, err := r.wait()
		if err != nil {
			failed = refused("save", f, "every", err)
			continue
		}
		all[f] = parseAll(out)
	}
	if failed != nil {
		return nil, failed
	}
	return all, nil
}

// running is a program that has been started, or could not be.
type running struct {
	cmd       *exec.Cmd
	out, said bytes.Buffer
	failed    error
}

func start(ctx context.Context, input, program string, args ...string) *running {
	r := &running{cmd: exec.CommandContext(ctx, program, args...)}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = strings.NewReader(input), &r.out, &r.said
	r.failed = r.cmd.Start()
	return r
}

// wait returns the output. The error begins with the program's message.
func (r *running) wait() (string, error) {
	if r.failed == nil {
		r.failed = r.cmd.Wait()
	}
	if said := firstLines(r.said.String(), 3); r.failed != nil && said != "" {
		return "", fmt.Errorf("%s: %w", said, r.failed)
	}
	return r.out.String(), r.failed
}

func run(ctx context.Context, input, program string, args ...string) (string, error) {
	return start(ctx, input, program, args...).wait()
}

func firstLines(s string, n int) string {
	lines := strings.SplitN(strings.TrimSpace(s), "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "; ")
}

// parseAll reads iptables-save's print of any number of tables.
func parseAll(s string) map[string]Chains {
	tables := map[string]Chains{}
	var chains Chains
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			chains = Chains{}
			tables[line[1:]] = chains
		case chains == nil:
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			chains[name] = nil
		case strings.HasPrefix(line, "-A "):
			chain, rule, _ := strings.Cut(line[3:], " ")
			chains[chain] = append(chains[chain], rule)
		}
	}
	return tables
}
