// Package answer checks an upstream's answer and writes the reply to the client, with
// the dns library: Check returns the addresses that count for the question, Relay,
// Restrict and Encode make the reply from the answer. The proxy calls it for the
// messages that package wire does not read in place. It knows names and messages, and
// neither policies nor the cache.
package answer
