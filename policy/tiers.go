package policy

// TiersEnforced tells whether the dataplane enforces the tiers with an order. It is the one
// gate of the cluster policies: while it is false, compile.New takes no rule of them into a
// view, status says that they are not enforced, and check warns of them.
const TiersEnforced = true
