package probe

import (
	"context"
	"net"
	"time"
)

// Window is what a starting pod could do before it was known: it dials an address
// that nothing allows, from its first moment on.
type Window struct {
	// Opened counts the connections that were made, LastMillis is when the last
	// of them was, in milliseconds after the begin.
	Opened     int   `json:"opened"`
	LastMillis int64 `json:"lastMillis"`
	Denied     int   `json:"denied"`
	// OpenAgain: after a connection was denied another was made.
	OpenAgain bool `json:"openAgain"`
	// Survived: the first connection that was made still works at the end.
	Survived bool `json:"survived"`
}

// windowTry is how long one try may take, and windowRest the rest after it.
const (
	windowTry  = 250 * time.Millisecond
	windowRest = 5 * time.Millisecond
)

// Watch dials ADDRESS:PORT over TCP again and again for a time.
func Watch(ctx context.Context, to string, length time.Duration) Window {
	var w Window
	var first net.Conn
	begin := time.Now()
	for time.Since(begin) < length {
		c, err := (&net.Dialer{Timeout: windowTry}).DialContext(ctx, "tcp", to)
		switch {
		case err == nil && w.Denied > 0:
			w.OpenAgain = true
			c.Close()
		case err == nil:
			w.Opened++
			w.LastMillis = time.Since(begin).Milliseconds()
			if first == nil {
				first = c
				break
			}
			c.Close()
		case Classify(err) != Unreachable: // the network is not there yet
			w.Denied++
		}
		time.Sleep(windowRest)
	}
	if first != nil {
		w.Survived = new(Dialled).round(first) == nil
		first.Close()
	}
	return w
}
