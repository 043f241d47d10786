// Package status reports to the users of the cluster how the agents enforce their
// policies: by conditions and by events.
//
// Each agent writes the findings of its node to a Lease of its own, and emits events for
// them. One elected agent gathers all Leases and writes the conditions. Nothing here decides what is enforced.
package status
