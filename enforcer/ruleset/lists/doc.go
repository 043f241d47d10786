// Package lists makes chains of rules in order, and of rules without an order, as a packet comes to few of them: it asks names
// and networks of long lists at once, and divides what is left into chains that lists share and that a change of one rule
// leaves. Package layout makes tables of them.
//
// It knows the words of rules of nft, and no tiers, subjects or hooks.
package lists
