package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/wire"
	"sigs.k8s.io/knftables"
)

// Attributes of linux/netfilter/nf_tables.h that package unix does not name.
const (
	flowtableTable    = 1
	flowtableName     = 2
	flowtableHook     = 3
	flowtableHookDevs = 3
	deviceName        = 1
	devicePrefix      = 2 // of several devices
)

// Flowtable is a flow table of another program: it forwards packets of its connections from its
// devices, and no rule sees them.
type Flowtable struct {
	Table
	Name string
	// Devices are names of interfaces, or beginnings of names with "*" behind them.
	Devices []string
}

func (f Flowtable) String() string { return fmt.Sprintf("%s %s %s", f.Family, f.Table.Name, f.Name) }

// Flowtables lists the flow tables of the host.
func (t *Tables) Flowtables() (out []Flowtable, err error) {
	if !t.direct {
		return t.flowtables, nil
	}
	words := map[uint8]knftables.Family{}
	for word, f := range wire.FamilyNumbers {
		words[f] = word
	}
	err = t.kernel.ask(unix.NFT_MSG_GETFLOWTABLE, unix.NFPROTO_UNSPEC, true, func(f uint8, attrs []byte) {
		out = append(out, parseFlowtable(string(words[f]), attrs))
	})
	if err != nil && !errors.Is(err, errInterrupted) {
		return nil, fmt.Errorf("list flow tables: %w", err)
	}
	return out, nil
}

// FakeFlowtables says which flow tables there are. It is for tables on fakes.
func (t *Tables) FakeFlowtables(all ...Flowtable) { t.flowtables = all }

func parseFlowtable(family string, attrs []byte) Flowtable {
	a := nfattr.Parse(attrs)
	f := Flowtable{Table: Table{family, nfattr.String(a[flowtableTable])}, Name: nfattr.String(a[flowtableName])}
	nfattr.Each(nfattr.Parse(a[flowtableHook])[flowtableHookDevs], func(typ int, name []byte) {
		switch typ {
		case deviceName:
			f.Devices = append(f.Devices, nfattr.String(name))
		case devicePrefix:
			f.Devices = append(f.Devices, nfattr.String(name)+"*")
		}
	})
	return f
}
