// Package denial says what connections were denied on this node and why: packets
// from the kernel's log become flows of the audit log, with the names under which
// the destination was seen, and alike ones are counted.
package denial
