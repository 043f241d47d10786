// Package event has what the Events of policies and pods have in common: the object that they
// are about, how long a note may be, and when the same Event is emitted again. Packages
// status and companion emit the Events; this package emits none and asks no clock.
package event
