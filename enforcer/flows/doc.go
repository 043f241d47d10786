// Package flows withdraws the admission of tracked connections that are no longer
// allowed. Every change that takes a right away (a policy that allows less, a pod that
// ends, a lost peer, the recheck set of an earlier agent) hands the addresses of its pods
// to Queue.Recheck; Queue.Run lists their connections and withdraws the admission of
// those that a judge denies. The enforcer calls it in every Commit and gives the judge.
//
// An agent may die after a right is taken away and before the connections are cut; the
// next agent sees no difference then. So Record writes the addresses to sets of the
// kernel before new rules are in force, and Run removes them when nothing is left to do.
// Recover reads an earlier agent's set.
//
// The package knows addresses, connections and one mark bit: neither policies nor grants.
package flows
