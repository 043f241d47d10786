// Package limit bounds what clients may use of the proxy: queries a second by token
// buckets, queries in flight and TCP connections by slots, each for one client and for
// all. Its Watchdog notices a query that never ends. The listeners ask it before a query
// is read. It knows addresses and numbers: neither policies nor DNS.
package limit
