// Package entry is how an agent's console is published: where it listens and with which key, in an annotation of a
// Lease. Package access writes entries, and package client finds agents by them.
package entry

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
	// Suffix is the suffix of a node's annotation, behind the node's name.
	Suffix = "/namegate-console"
)

// LeaseNames are the names of all Leases.
func LeaseNames() []string {
	out := make([]string, leaseCount)
	for i := range out {
		out[i] = LeasePrefix + strconv.FormatInt(int64(i), leaseCount)
	}
	return out
}

// LeaseOf returns the name of the Lease that a node's annotation is in.
func LeaseOf(node string) string {
	h := fnv.New32a()
	h.Write([]byte(node))
	return LeaseNames()[h.Sum32()%leaseCount]
}

// maxDial bounds the addresses of an agent that are tried: a node has one or two, and
// an agent that published thousands would keep its callers for hours.
const maxDial = 8

// Entry is the content that an agent publishes about its console.
type Entry struct {
	Node      string           `json:"-"`
	Addresses []netip.AddrPort `json:"addresses"`
	Pin       Pin              `json:"key"`
}

// Key returns the annotation's key.
func (e Entry) Key() string { return e.Node + Suffix }

// Encode returns the annotation's value.
func (e Entry) Encode() (string, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("write the console of node %s: %w", e.Node, err)
	}
	return string(text), nil
}

// Decode reads what Encode wrote.
func Decode(node, text string) (Entry, error) {
	e := Entry{Node: node}
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return Entry{}, fmt.Errorf("read the console of node %s: %w", node, err)
	}
	if e.Pin == (Pin{}) {
		return Entry{}, fmt.Errorf("read the console of node %s: it has no key", node)
	}
	e.Addresses = e.Addresses[:min(len(e.Addresses), maxDial)]
	return e, nil
}
