// Package web serves the live page of `namegate ui` on loopback: what talks to which names, and what is
// denied. It asks agents as the other commands do, by client.Agent, so the agents' rights hold for
// the page too. console/cli calls it; it knows nothing of clusters, sockets and flags.
package web
