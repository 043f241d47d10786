// Package subscription turns the events of a netlink group into tokens. Packages link and
// nft watch the kernel by it. A subscription that breaks is made again, and its user is
// told. The package knows sockets and messages, and no event.
package subscription
