package check

import (
	"fmt"

	"github.com/namegate/namegate/policy/fqdn"
)

// metadataNames are names of the metadata services of Google and AWS, which lead to
// metadataAddress. Source: https://cloud.google.com/compute/docs/metadata/querying-metadata.
var metadataNames = []string{"metadata.google.internal", "metadata.goog", "instance-data.ec2.internal"}

const metadataAddress = "169.254.169.254"

// guarded says that the guard against rebinding keeps the address of a name of the pattern closed,
// "" for others.
func guarded(pattern fqdn.Pattern) string {
	for _, name := range metadataNames {
		if n, err := fqdn.ParseName(name); err == nil && pattern.Matches(n) {
			return fmt.Sprintf("%s leads to a cloud's metadata service, and the guard against rebinding removes %s from its answers; if it is meant, write in the Corefile: rebind allow %s %s", name, metadataAddress, name, metadataAddress)
		}
	}
	return ""
}
