package names

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/stretchr/testify/require"
	api "sigs.k8s.io/network-policy-api/apis/v1beta1"
)

// held is the state of a connection that goes on.
type held struct {
	Rounds int // lines that came back
	Error  string
}

// holds opens a connection to a name's address. What it returns demands that the connection
// still works.
func (p *subject) holds(labels string) (goesOn func()) {
	p.Helper()
	to := netip.AddrPortFrom(p.addresses(labels)[0], uint16(p.Port)).String()
	file := "/" + labels
	_, err := run[any](p.Environment, p.podName, "hold", to, file)
	require.NoError(p, err)
	goesOn = func() {
		p.Helper()
		before := -1
		eventually(p.T, p.suite.TimeoutConfig.PokeTimeout, func() error {
			now, err := run[held](p.Environment, p.podName, "state", file)
			require.NoError(p, err)
			require.Emptyf(p, now.Error, "the connection to %s broke after %d lines", to, now.Rounds)
			if before < 0 {
				before = now.Rounds
			}
			if now.Rounds < before+2 { // one may have been on its way
				return errors.New("no line comes back over the connection to " + to)
			}
			return nil
		})
	}
	goesOn()
	return goesOn
}

// testTTL: names are asked once, and have another address from then on, so that nothing can
// renew the first. One of them has a connection. Another name is asked again and again.
func testTTL(p *subject) {
	p.policy(api.AdminTier, 100, p.dns(), accept(p.named("expire", "flow", "reset")), everything())
	p.enforced()
	for _, labels := range []string{"flow", "reset", "expire"} {
		p.opens(labels)
	}
	asked := time.Now()
	goesOn := p.holds("flow")
	_, err := run[any](p.Environment, "dns", "record", fmt.Sprintf("%s. %[3]d A %[4]s\n%[2]s. %[3]d A %[4]s", p.name("expire"), p.name("flow"), shortTTL, p.at(expiredAt)))
	require.NoError(p, err)
	once := netip.AddrPortFrom(p.addresses("expire")[0], uint16(p.Port)).String()
	for limit := shortTTL*time.Second + p.Slack; ; {
		p.resolves(p.name("reset"))
		failed, err := run[map[string]string](p.Environment, p.podName, "sweep", "--timeout", "3s", once)
		require.NoError(p, err)
		if len(failed) > 0 {
			break
		}
		require.Lessf(p, time.Since(asked), limit, "the address of %s is still open after its TTL of %d s", p.name("expire"), shortTTL)
		time.Sleep(shortTTL * time.Second / 2)
	}
	p.Logf("closed %v after the answer", time.Since(asked).Round(time.Second))
	p.open(p.addresses("reset")...)
	goesOn()
	p.closed(p.addresses("expire")...)
	p.same([]netip.Addr{p.at(expiredAt)}, p.resolves(p.name("expire")))
	p.open(p.at(expiredAt))
	goesOn()
}
