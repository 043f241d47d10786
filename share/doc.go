// Package share bounds the resources that the subjects of a node share, and serves subjects in
// turns: what one of them cannot hold concerns that one alone.
//
// A Bound has a most for each subject, a least that each has for certain, and a most for all that
// is held beyond the least. Beyond its least a subject may hold no more than all leave free: so
// the subjects that hold most stop first (dynamic thresholds with a factor of one:
// A. K. Choudhury and E. L. Hahne, "Dynamic queue length thresholds for shared-memory packet
// switches", IEEE/ACM Transactions on Networking 6(2), 1998).
//
// The table Shares in docs/security.md has a row for each Bound.
package share
