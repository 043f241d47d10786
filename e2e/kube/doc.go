// Package kube is the scenarios on a real cluster: two nodes, the agent installed
// by helm from its image, pods that ask and connect. Run them with `make e2e`.
package kube
