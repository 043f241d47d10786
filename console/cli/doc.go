// Package cli is the commands that people type: status, pods, grants, explain, audit,
// suggest and check. Their flags say which agents they ask: the agent at the socket of this
// node, or those of a cluster. cmd/namegate adds the agent's own commands,
// cmd/kubectl-namegate has these alone and builds on every operating system. So the
// package may not know enforcer, kernel, proxy and agent.
package cli
