// Package flows takes the admission of tracked connections back that are not allowed any
// more. Everything that takes a right away (a policy that allows less, a pod that ends, a
// peer that is lost, the debts of an earlier agent) hands the addresses of its pods to
// Queue.Recheck; Queue.Run lists their connections and withdraws the admission of those
// that a judge denies. The enforcer calls it in every Commit and gives the judge.
//
// An agent may die after a right is taken back and before the connections are cut; to the
// next agent nothing looks amiss then. So Owe writes the addresses to sets of the kernel
// before new rules are in force, and Run removes them when nothing is left to do. Recover
// reads what an earlier agent left.
//
// The package knows addresses, connections and one mark bit: neither policies nor grants.
package flows
