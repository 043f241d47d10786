package policy

// Unmatched is the reply to a question for a name that no match covers. Greater is
// stricter.
type Unmatched uint8

// The values of Unmatched.
const (
	Resolve  Unmatched = iota // its answer, which opens nothing
	NXDomain                  // NXDOMAIN
	Refuse                    // REFUSED
	NoData                    // an answer without data; of a Limit alone, no policy sets it
)

// String returns the word of the API.
func (u Unmatched) String() string { return [...]string{"Resolve", "NXDomain", "Refuse", "NoData"}[u] }

// Denied is how a denied connection fails. Greater is stricter.
type Denied uint8

// The values of Denied.
const (
	Reject Denied = iota // TCP reset or ICMP prohibited
	Drop                 // silence
)

// String returns the word of the API.
func (d Denied) String() string { return [...]string{"Reject", "Drop"}[d] }
