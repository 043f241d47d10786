// Package safeguard decides which policies for nodes this node only audits because their
// administrators have not confirmed them.
//
// A generation of a policy with spec.safeguard is enforced on a node for confirmWithin. Unless the
// annotation namegate.io/confirmed names the generation by then, or if the API server is
// unavailable for a minute before, the node turns to auditing it. Turning lasts: an API server
// that is available again is no confirmation. It ends with a confirmation or another generation.
// A confirmed generation is enforced in every case, since an outage must not open nodes.
//
// The agent calls Guard.Amend before each compile, and asks once a second whether another compile
// is due. The time of a generation begins when the agent first compiles it for the node. That is
// some seconds before the kernel enforces it, so no generation is enforced without a time.
//
// Times are of the kernel's monotonic clock, which cannot be set, and are in a file in the agent's
// folder. The next agent reads the file, and the time in between counts, because the kernel goes
// on enforcing without an agent. /run is empty after a start of the machine. The kernel enforces
// nothing then until the agent has compiled the policies, so the time begins anew. If the file
// survives the start, turned policies stay turned.
//
// A folder of manifests has neither generations nor annotations that others set. Safeguards have no
// effect there.
//
// State and Step are pure. The package knows compile.Input and no other part of the agent.
package safeguard
