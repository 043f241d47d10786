// Package listener serves addresses over UDP and TCP. The proxy's server makes a Server
// and gives it a Handler for each address: the Handler gets the packets and the messages
// that arrive, and replies at once or later, from any goroutine. The package opens,
// drains and closes the sockets, and bounds how long, how large and how many the messages
// of a connection are. It knows nothing of clients, policies, caches and upstreams, and
// of DNS its framing over TCP.
package listener
