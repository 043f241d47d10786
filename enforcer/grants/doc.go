// Package grants holds the grants of one node: which address is open to which pod, on
// which ports, by which names and until when; in the tiers with an order, for which rule it
// counts. Table has a set for each subject and target: a rule with one address of a pod, from
// the first grant on, as rules are many and their grants few, or a port set with one address
// family of a pod. It writes through a dataplane.GrantWriter.
//
// The proxy calls GrantThen, Covered and Epoch for its answers. The enforcer
// carries grants from one snapshot to the next, revokes the grants that a policy does not
// allow any more, and ends grants at their deadlines. Table is also the dataplane.Grants
// of the dataplane, which adds the sets that the Namespace tier uses, with the grants that an
// earlier agent left, which are recovered from their comments, and compares and repairs sets
// by it. The console lists grants. The package knows nothing of packet filters and DNS
// messages.
//
// # Rules that deny or pass
//
// Their grants are lasting: they are written before all others of a batch, and where one of
// a pod cannot be written, nothing else of the pod is. They are extended before another
// grant of the pod and the address ends later, are never evicted, and are withdrawn after
// others.
//
// # Locks
//
// Only the holder of Table.mu changes the entries of the sets in the kernel and the
// table's pods, views, sets and grants. The lock is held over the write to the kernel and
// the change of the table that follows. So changes are serialized, the later deadline of
// two writers wins, and an answer, an expiry and a new snapshot each see the result of
// the other. The holder waits for the kernel and for nothing else. The lock is released
// between batches, between pods and between parts of an expiry. A set is created before
// it enters the table, and destroyed after it left.
//
// Reading needs no Table.mu: the pods are replaced by a changed copy, and the sets of a pod and
// the grants of a set are also changed under a lock of their own, which is never held over a
// write. So Covered waits for nothing.
//
// An address enters the table after the kernel has acknowledged it. It is uncertain from
// before its removal from the kernel until it left the table or is written again, and
// after the kernel refused to add it: it may be there all the same. An uncertain address
// covers no answer, is written again by the next grant, and is removed like the others.
package grants
