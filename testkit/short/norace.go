//go:build !race

package short

// raced tells whether the race detector is in the binary.
const raced = false
