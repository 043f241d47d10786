// Package check reads manifests as a pull request has them, and the objects of a cluster that
// its caller gives access to: it reports errors of the API server or an agent, likely mistakes,
// and whether a pod could reach a name. It changes and starts nothing.
package check
