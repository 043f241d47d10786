package dataplane

import (
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
)

// TestPeersName: no two peers have one name, whatever their keys are, and the tables take it.
func TestPeersName(t *testing.T) {
	seen := map[string]policy.Peer{}
	for kind := policy.PeerPods; kind <= policy.PeerPorts; kind++ {
		for _, key := range []string{"", "a", "1a", "shop: app=db", "\x00", strings.Repeat("x", 500)} {
			p := policy.Peer{Kind: kind, Key: key}
			name := PeersName(p)
			if was, there := seen[name]; there || len(name) != 24 || strings.Trim(name, "0123456789abcdef") != "" {
				t.Errorf("%v is named %s, as %v is", p, name, was)
			}
			seen[name] = p
		}
	}
}
