package nft

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/wire"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// kernel is nftables, by a socket for changes and requests that take no time, and one for listings.
type kernel struct{ changes, lister *nfattr.Socket }

// attribute appends an attribute to a request.
type attribute = func([]byte) []byte

// ask sends a request about objects of nftables and hands over the family and the attributes of
// each reply, which are valid until each returns. An object that is not there has no reply.
func (k kernel) ask(request uint16, f uint8, list bool, each func(f uint8, attrs []byte), about ...attribute) error {
	ask := k.changes.Get
	if list {
		ask = k.lister.List
	}
	err := ask(unix.NFNL_SUBSYS_NFTABLES<<8|request, f, func(b []byte) []byte {
		for _, a := range about {
			b = a(b)
		}
		return b
	}, func(m []byte) {
		// Some kernels list every family.
		if f == unix.NFPROTO_UNSPEC || m[0] == f {
			each(m[0], m[nfattr.HeaderLen:])
		}
	})
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

// dump lists objects. One listing need not be consistent: a reader compares two.
func (k kernel) dump(request uint16, f uint8, each func(attrs []byte), about ...attribute) error {
	err := k.ask(request, f, true, func(_ uint8, attrs []byte) { each(attrs) }, about...)
	if errors.Is(err, nfattr.ErrChanged) {
		return nil
	}
	return err
}

// movesDeadlines tells whether the kernel moves the deadline of an element that is there if it is added again with
// the time that is left: Linux 6.12 and later.
func movesDeadlines() bool {
	var u unix.Utsname
	var major, minor int
	err := unix.Uname(&u)
	_, unread := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return err == nil && unread == nil && (major > 6 || major == 6 && minor >= 12)
}

// text is an attribute that holds a name.
func text(typ int, s string) attribute {
	return func(b []byte) []byte { return nfattr.AppendString(b, typ, s) }
}

// tableNames returns all tables. The program nft reads every rule of the host before it prints
// their names.
func (k kernel) tableNames() ([]ID, error) {
	words := map[uint8]string{}
	for word, f := range wire.FamilyNumbers {
		words[f] = string(word)
	}
	var out []ID
	err := k.ask(unix.NFT_MSG_GETTABLE, unix.NFPROTO_UNSPEC, true, func(f uint8, attrs []byte) {
		out = append(out, ID{words[f], nfattr.String(nfattr.Parse(attrs)[unix.NFTA_TABLE_NAME])})
	})
	if err != nil {
		return nil, fmt.Errorf("list nft tables: %w", err)
	}
	return out, nil
}

// generation returns the number of the last change of nftables.
func (k kernel) generation() (id uint32, err error) {
	err = k.ask(unix.NFT_MSG_GETGEN, unix.NFPROTO_UNSPEC, false, func(_ uint8, attrs []byte) {
		id = nfattr.Uint32(nfattr.Parse(attrs)[unix.NFTA_GEN_ID])
	})
	if err == nil && id == 0 {
		err = errNoGeneration
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of nftables: %w", err)
	}
	return id, nil
}

var errNoGeneration = errors.New("the kernel reports none")

// Packets returns the number of packets that a counter counted since its table was made. It is 0 without the table, and
// on fakes.
func (t *Tables) Packets(id ID, counter string) (packets uint64, err error) {
	if !t.direct {
		return 0, nil
	}
	err = t.kernel.ask(unix.NFT_MSG_GETOBJ, wire.FamilyNumbers[knftables.Family(id.Family)], false, func(_ uint8, attrs []byte) {
		data := nfattr.Parse(nfattr.Parse(attrs)[unix.NFTA_OBJ_DATA])
		packets = nfattr.Uint64(data[unix.NFTA_COUNTER_PACKETS])
	}, text(unix.NFTA_OBJ_TABLE, id.Name), text(unix.NFTA_OBJ_NAME, counter),
		func(b []byte) []byte { return nfattr.AppendUint32(b, unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER) })
	if err != nil {
		return 0, fmt.Errorf("read the nft counter %s %s: %w", id, counter, err)
	}
	return packets, nil
}

// program is the program nft. Its message repeats the lines that it refuses, which may be all
// elements of a set.
type program struct{ knftables.Interface }

func (p program) Run(ctx context.Context, tx *knftables.Transaction) (err error) {
	if commands, declared := inDeclarations(tx.String()); declared || len(commands) > 64<<10 { // knftables keeps its buffer
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
	out.Grow(len(text))
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
					return text, false
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
