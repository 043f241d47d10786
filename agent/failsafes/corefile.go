package failsafes

import (
	"slices"

	"github.com/namegate/namegate/proxy/corefile"
)

// CorefileOf selects the part of a configuration that the failsafes depend on.
func CorefileOf(c *corefile.Config) (out Corefile) {
	out.Failsafes, out.Ranges = c.Failsafes, c.ClusterRanges
	for _, z := range c.Zones {
		for _, to := range z.To {
			if !slices.Contains(out.Upstreams, to) {
				out.Upstreams = append(out.Upstreams, to)
			}
		}
	}
	return out
}
