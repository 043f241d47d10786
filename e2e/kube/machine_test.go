package kube

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// canaryEvery is how often a canary looks at the clock.
const canaryEvery = 20 * time.Millisecond

// canary sleeps all the time and notes the excess of its sleeps: lost time in a scenario
// means little if the machine itself stood still.
type canary struct {
	stop chan struct{}
	done chan struct{}
	late time.Duration // the longest
	when time.Duration // since its begin
	cpu  string        // /proc/stat's first line at the begin
}

func startCanary() *canary {
	c := &canary{stop: make(chan struct{}), done: make(chan struct{}), cpu: processors()}
	go func() {
		defer close(c.done)
		begin := time.Now()
		for last := begin; ; {
			select {
			case <-c.stop:
				return
			case <-time.After(canaryEvery):
			}
			now := time.Now()
			if late := now.Sub(last) - canaryEvery; late > c.late {
				c.late, c.when = late, now.Sub(begin)
			}
			last = now
		}
	}()
	return c
}

// end stops the canary and returns its results, with the kernel's view of the machine.
func (c *canary) end() string {
	close(c.stop)
	<-c.done
	var b strings.Builder
	fmt.Fprintf(&b, "the machine: a sleeper woke at most %v late, %v after the begin\n", c.late.Round(time.Millisecond), c.when.Round(time.Second))
	fmt.Fprintf(&b, "processors (user nice system idle iowait irq softirq steal, in 1/100 s), before and now:\n%s\n%s\n", c.cpu, processors())
	for _, of := range []string{"cpu", "io", "memory"} {
		text, err := os.ReadFile("/proc/pressure/" + of)
		if err == nil {
			fmt.Fprintf(&b, "pressure of %s:\n%s", of, text)
		}
	}
	return b.String()
}

// processors is the kernel's count of all processors' time.
func processors() string {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return err.Error()
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return first
}
