package link

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestConsistent(t *testing.T) {
	t.Parallel()
	other := errors.New("other")
	changing := fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
	for _, c := range []struct {
		name    string
		changes int // how many lists change while they are listed
		then    error
		asked   int
	}{
		{"at once", 0, nil, 1},
		{"after changes", 3, nil, 4},
		{"another error", 2, other, 3},
		{"it never ends", consistentTries + 1, changing, consistentTries},
	} {
		asked := 0
		got, err := consistent(func() (int, error) {
			if asked++; asked <= c.changes {
				return -1, changing
			}
			return 7, c.then
		})
		if !errors.Is(err, c.then) || asked != c.asked || err == nil && got != 7 {
			t.Errorf("%s: %d, %v after %d lists", c.name, got, err, asked)
		}
	}
}
