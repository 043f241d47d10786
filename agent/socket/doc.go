// Package socket serves HTTP at a unix socket that root alone can open, and asks at one.
//
// The agent answers the node's commands and the kubelet's probes by it. It knows nothing
// of what is asked.
package socket
