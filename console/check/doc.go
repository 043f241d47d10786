// Package check reads manifests as a pull request has them, without a cluster: it reports
// errors of the API server or an agent, likely mistakes, and whether a pod could reach a
// name. It reads and starts nothing by itself.
package check
