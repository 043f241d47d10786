//go:build race

package proxy

// raceEnabled tells whether the race detector is on: it makes pools forget.
const raceEnabled = true
