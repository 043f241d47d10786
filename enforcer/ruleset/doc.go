// Package ruleset renders the wanted nft tables from subjects, snapshots, grants and
// the interception of DNS. It is pure: it keeps nothing but in the caller's memo, and reads no kernel.
//
// While a snapshot is prepared the state has what either snapshot needs; once the snapshot is in
// force, what that one needs. Package enforcer has the state written.
package ruleset
