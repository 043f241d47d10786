// Package follow keeps the followed names: names in the SRV, MX, SVCB and HTTPS records of the
// answers to names that a rule covers. For the time of such an answer, a followed name counts for its
// pod as each of the names that led to it.
//
// Where there are more than the bounds allow, the names stay that come first: by names that rules deny
// or pass which do not cover the followed name by themselves, then the others, each in the order of
// names. None of the first is ever removed for another.
//
// Package proxy adds the names of each answer to its Table, asks it about each question, and sweeps it
// with each snapshot. The package reads no DNS messages.
package follow
