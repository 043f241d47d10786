// Package selftest waits for the queries that the agent sends to test the path of a pod's
// DNS: Expect makes a unique name, and the proxy passes each packet to Take. It knows
// bytes, and neither clients nor policies.
package selftest
