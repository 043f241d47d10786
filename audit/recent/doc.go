// Package recent remembers DNS answers that opened nothing: which names a pod was told
// an address under, and how its last question for a name was decided. The agent feeds a
// Memory from the proxy's log and from the enforcer's revoked grants; audit/denial and
// console read it. It knows neither the kernel nor who reads.
package recent
