// Package traffic adds lines of the audit log up to edges from workloads to names, over a sliding
// hour. It is pure: console/web hands it lines and the time.
package traffic
