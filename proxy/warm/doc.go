// Package warm asks the questions that no client sends: Ups asks for the names of pods that got their
// answers elsewhere, and InUse for names whose addresses are in use and end. The proxy decides, grants
// and logs such a question as one of the pod. The package knows views and names: neither messages
// nor upstreams.
package warm

import (
	"net/netip"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Proxy is how the proxy asks. All are required.
type Proxy struct {
	// Snapshot returns the snapshot by which questions are decided.
	Snapshot func() *policy.Snapshot
	// Ask asks a question as the subject of its view would. then is called once, from any goroutine,
	// and must not block.
	Ask func(q Question, then func(Result))
	// Passes tells whether the guard lets a name open an address, for the subject of the view.
	Passes func(v *policy.View, snap *policy.Snapshot, n fqdn.Name, a netip.Addr) bool
	// Kept counts and logs addresses that stay open without an answer.
	Kept func(r audit.Record, addresses int)
	// Do runs a job on another goroutine, and After when the time is over, unless it is stopped.
	Do    func(job func())
	After func(d time.Duration, job func()) (stop func() bool)
	// Protect runs f, and reports a fault in it, which makes ok false.
	Protect func(what string, f func()) (ok bool)
	// Elapsed is the time of the proxy.
	Elapsed func() time.Duration
}

// Question is one question for the addresses of a name.
type Question struct {
	View *policy.View
	Snap *policy.Snapshot // that has the view
	Name fqdn.Name
	Type uint16
	// InUse: of the answer the addresses in Held alone stay open, and no other is opened.
	InUse bool
	Held  []netip.Addr
	// Early is how much before its end the answer to an earlier question does not count any more.
	Early time.Duration
}

// Result is how a question ended. It is lent.
type Result struct {
	Verdict audit.Verdict
	Error   string       // why it failed
	Kept    []netip.Addr // the addresses in use that the answer has
}
