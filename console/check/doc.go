// Package check reads manifests as a pull request has them, without a cluster: it says
// what an API server or an agent would refuse, what looks like a slip, and whether a
// pod could reach a name. It reads and starts nothing by itself.
package check
