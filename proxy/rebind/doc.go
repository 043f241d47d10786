// Package rebind is the guard against DNS rebinding: it decides which addresses the
// answer to a name must not open, such as loopback, metadata services and addresses of
// the cluster. The proxy asks it about each address of an answer, explain and suggest
// about single ones. It is pure, and knows nothing of queries, answers and grants.
package rebind
