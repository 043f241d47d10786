// Package backoff says when one object may be written next. The wait doubles while the same
// object is written again and again, so that two agents that disagree, or another
// controller, do not make each other write without end. Package status keeps
// a Backoff for each object that it writes; it asks no clock and writes nothing.
package backoff
