package nft

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/wire"
	"golang.org/x/sys/unix"
)

// kernel is nftables in the network namespace of the threads that ask.
type kernel struct{ sockets *nfattr.Sockets }

// attribute appends an attribute to a request.
type attribute = func([]byte) []byte

// ask sends a request about objects of nftables and hands over the family and the attributes of
// each reply, which are valid until each returns. An object that is not there has no reply. A
// listing that changed meanwhile is handed over all the same: the error is errInterrupted.
func (k kernel) ask(request uint16, f uint8, list bool, each func(f uint8, attrs []byte), about ...attribute) error {
	err := k.sockets.With(func(s *nfattr.Socket) error {
		ask := s.Get
		if list {
			ask = s.List
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
		if err == nil && s.Changed() {
			return errInterrupted
		}
		return err
	})
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

var errInterrupted = errors.New("the objects changed during the listing")

// dump lists objects. One listing need not be consistent: a reader compares two.
func (k kernel) dump(request uint16, f uint8, each func(attrs []byte), about ...attribute) error {
	err := k.ask(request, f, true, func(_ uint8, attrs []byte) { each(attrs) }, about...)
	if errors.Is(err, errInterrupted) {
		return nil
	}
	return err
}

// text is an attribute that holds a name.
func text(typ int, s string) attribute {
	return func(b []byte) []byte { return nfattr.AppendString(b, typ, s) }
}

// tableNames returns all tables. The program nft reads every rule of the host before it prints
// their names.
func (k kernel) tableNames() ([]Table, error) {
	words := map[uint8]string{}
	for word, f := range wire.FamilyNumbers {
		words[f] = string(word)
	}
	var out []Table
	err := k.ask(unix.NFT_MSG_GETTABLE, unix.NFPROTO_UNSPEC, true, func(f uint8, attrs []byte) {
		out = append(out, Table{words[f], nfattr.String(nfattr.Parse(attrs)[unix.NFTA_TABLE_NAME])})
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

// Denied returns the number of packets that were denied since the tables were made,
// including unlogged ones. It is 0 without the tables, and on fakes.
func (t *Tables) Denied() (packets uint64, err error) {
	if !t.direct {
		return 0, nil
	}
	err = t.kernel.ask(unix.NFT_MSG_GETOBJ, unix.NFPROTO_INET, false, func(_ uint8, attrs []byte) {
		counter := nfattr.Parse(nfattr.Parse(attrs)[unix.NFTA_OBJ_DATA])
		packets = nfattr.Uint64(counter[unix.NFTA_COUNTER_PACKETS])
	}, text(unix.NFTA_OBJ_TABLE, TableName), text(unix.NFTA_OBJ_NAME, deniedCounter),
		func(b []byte) []byte { return nfattr.AppendUint32(b, unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER) })
	if err != nil {
		return 0, fmt.Errorf("read the counter of denied packets: %w", err)
	}
	return packets, nil
}
