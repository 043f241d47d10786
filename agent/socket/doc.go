// Package socket serves HTTP at a unix socket that only root can open.
//
// The agent answers the node's commands and the kubelet's probes at it. The package does
// not know the requests.
package socket
