// Package selftest waits for the queries that the agent sends to test the path of a pod's
// DNS: Expect makes a name that nobody else asks for, and the proxy shows each packet to
// Take. It knows bytes, and neither clients nor policies.
package selftest
