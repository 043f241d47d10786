package access

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"
)

// Where agents publish their consoles: in sixteen Leases of the release's namespace.
// Their names are known, so that a Role can let everybody read these and no other
// Lease: the nodes' own ones hold findings about everybody's pods. Each node has an
// annotation in one of them. 256 KiB of annotations are room for 1,500 nodes in each.
const (
	// LeasePrefix and a hexadecimal digit are the name of a Lease.
	LeasePrefix = "namegate-console-"
	leaseCount  = 16
	// entryKey is the suffix of a node's annotation, behind the node's name.
	entryKey = "/namegate-console"
)

// leaseNames are the names of all Leases.
func leaseNames() []string {
	out := make([]string, leaseCount)
	for i := range out {
		out[i] = LeasePrefix + strconv.FormatInt(int64(i), leaseCount)
	}
	return out
}

// leaseOf returns the name of the Lease that a node's annotation is in.
func leaseOf(node string) string {
	h := fnv.New32a()
	h.Write([]byte(node))
	return leaseNames()[h.Sum32()%leaseCount]
}

// maxDial bounds the addresses of an agent that are tried: a node has one or two, and
// an agent that published thousands would keep its callers for hours.
const maxDial = 8

// entry is the content that an agent publishes about its console.
type entry struct {
	node      string
	addresses []netip.AddrPort
	pin       Pin
}

// published is an entry as it is written.
type published struct {
	Addresses []netip.AddrPort `json:"addresses"`
	Key       string           `json:"key"`
}

// key returns the annotation's key.
func (e entry) key() string { return e.node + entryKey }

// encode returns the annotation's value.
func (e entry) encode() (string, error) {
	text, err := json.Marshal(published{e.addresses, e.pin.String()})
	if err != nil {
		return "", fmt.Errorf("write the console of node %s: %w", e.node, err)
	}
	return string(text), nil
}

// decodeEntry reads what encode wrote.
func decodeEntry(node, text string) (entry, error) {
	var p published
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return entry{}, fmt.Errorf("read the console of node %s: %w", node, err)
	}
	pin, err := ParsePin(p.Key)
	if err != nil {
		return entry{}, fmt.Errorf("read the console of node %s: %w", node, err)
	}
	return entry{node, p.Addresses[:min(len(p.Addresses), maxDial)], pin}, nil
}
