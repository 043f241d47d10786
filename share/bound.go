package share

// Bound is the bound of one resource, in units of it.
type Bound struct {
	Resource string // the row of the table Shares
	Least    int    // what each subject may hold, whatever the others hold
	Each     int    // the most that one subject holds, not less than Least
	All      int    // the most that all subjects hold together, but for what Least grants
}

// Room returns how many more units a subject may hold that holds own, where all subjects hold
// total: negative where it holds more than it may.
func (b Bound) Room(own, total int) int { return max(b.Least-own, min(b.Each-own, b.All-total-own)) }
