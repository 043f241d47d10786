// Package event has the common parts of the Events of policies and pods: the object, the
// maximum length of a note, and the time after which the same Event is emitted again.
// Package status emits the Events; this package emits none and asks no clock.
package event
