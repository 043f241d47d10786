// Package convert rewrites policies of other systems as policies of Namegate.
//
// The command convert calls it with manifests. It does no I/O, and knows the API types and
// the readers of manifests and policies, and no agent.
package convert
