package nft

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"sigs.k8s.io/knftables"
)

// program is the program nft. Its message repeats the lines that it refuses, which may be all
// elements of a set.
type program struct{ knftables.Interface }

func (p program) Run(ctx context.Context, tx *knftables.Transaction) (err error) {
	if commands, declared := inDeclarations(tx.String()); declared {
		err = runProgram(ctx, commands)
	} else {
		err = p.Interface.Run(ctx, tx)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && !exit.Exited() && ctx.Err() == nil {
		err = fmt.Errorf("the program nft crashed, as versions do that are older than the program that wrote another table of the host; install a newer nftables: %w", err)
	}
	if err != nil {
		return refusal{err}
	}
	return nil
}

// inDeclarations returns the commands of a transaction with the elements of its sets and maps in
// declarations at the end: for a command that adds an element, the program reads the elements of
// all sets of the host, also of other programs (nftables 1.0.6). declared is false without elements,
// and if one is of a set that the transaction does not add.
func inDeclarations(text string) (commands string, declared bool) {
	var out, end strings.Builder
	sets, elements, order := map[string]string{}, map[string][]string{}, []string(nil)
	for line := range strings.Lines(text) {
		words := strings.SplitN(line, " ", 6) // add set FAMILY TABLE NAME {…}
		if len(words) == 6 && words[0] == "add" {
			of, rest := strings.Join(words[2:5], " "), strings.TrimSpace(words[5])
			switch words[1] {
			case "set", "map":
				sets[of] = strings.TrimSuffix(strings.TrimSpace(line), "}")
			case "element":
				if sets[of] == "" {
					return "", false
				}
				if elements[of] == nil {
					order = append(order, of)
				}
				elements[of] = append(elements[of], strings.TrimSuffix(strings.TrimPrefix(rest, "{"), "}"))
				continue
			}
		}
		out.WriteString(line)
	}
	for _, of := range order {
		end.WriteString(sets[of] + "elements = {" + strings.Join(elements[of], ",") + "} ; }\n")
	}
	return out.String() + end.String(), len(order) > 0
}

// refusal is an error with the beginning of its text.
type refusal struct{ error }

// isRefused tells whether an error says that the program nft refused a transaction: it came to its end.
func isRefused(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.Exited()
}

// refusalBytes bounds the text.
const refusalBytes = 500

func (r refusal) Error() string {
	text := strings.TrimSpace(r.error.Error())
	if len(text) > refusalBytes {
		text = strings.ToValidUTF8(text[:refusalBytes], "") + "..."
	}
	return text
}

func (r refusal) Unwrap() error { return r.error }
