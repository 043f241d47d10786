// Package recent remembers DNS answers that opened nothing: the names under which a pod
// got an address, and the decision about its last query for a name. The agent feeds a
// Memory from the proxy's log and from the enforcer's revoked grants; audit/denial and
// console read it. It knows neither the kernel nor its readers.
package recent
