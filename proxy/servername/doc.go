// Package servername relays the TCP connections that are led to the agent since a rule requires
// their TLS server name. It reads the original destination, asks a Judge, reads the ClientHello where the
// server name counts, connects to the original destination, and copies both directions.
//
// It knows no enforcer and no kernel tables: package agent joins it with what leads connections
// to it and what judges them. It parses no TLS either: crypto/tls reads the hello. What is added to that makes
// the relay stricter, never more generous, so that no server reads another name than the relay did:
//
//   - A hello is all of its records and nothing else: no record of another type in between, no message behind it.
//   - The server_name extension is one host name and nothing else.
//   - encrypted_client_hello is denied, in each of its forms: a server that can decrypt it takes the name
//     inside, whatever the name outside is. Clients that send a random one (GREASE) look the same.
//   - After a HelloRetryRequest, the second ClientHello has to have the same name: some servers take the name from it.
//     For that, what a client sends behind its hello waits until the server's first bytes.
//
// What TCP keeps from a relay: of several urgent bytes that wait only the last one is marked, as on each receiver; a
// connection is accepted before the destination is asked, so a refused one looks like a reset; a client's reset is passed on after
// the destination took what was sent before it; options such as the maximum segment size and DSCP are those of the node.
package servername
