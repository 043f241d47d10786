// Package intercept decides where pods' DNS queries go. Each agent is a generation: it
// gives the node a serving address of its own for each resolver that pods dial, so that the
// reply to a query goes back from the address that was dialled. It keeps interception on by
// a heartbeat, for as long as the proxy answers on these addresses.
//
// Package enforcer writes the tables that lead queries there; the agent serves on the
// addresses and runs the heartbeat. The package knows addresses alone: neither pods nor
// policies nor how tables are written.
package intercept
