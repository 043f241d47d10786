package proxy

import "sync"

// idleCrew is how many workers stay when there is nothing to do. A worker that
// stays keeps its grown stack, which is most of what a new goroutine costs here.
const idleCrew = 64

// crew runs jobs on goroutines, each at once; how many there may be at a time is
// for its callers to bound.
type crew struct {
	jobs chan func()
	idle chan struct{} // a place for each idle worker
	done chan struct{}
	once *sync.Once
	// fault is told of a job that panics; the worker goes on.
	fault func(what string, r any)
}

func newCrew(fault func(what string, r any)) crew {
	return crew{fault: fault, jobs: make(chan func()), idle: make(chan struct{}, idleCrew), done: make(chan struct{}), once: new(sync.Once)}
}

// do runs the job on an idle worker or on a new one.
func (c *crew) do(job func()) {
	select {
	case c.jobs <- job:
	default:
		go c.work(job)
	}
}

func (c *crew) work(job func()) {
	for {
		c.run(job)
		select {
		case c.idle <- struct{}{}:
		default:
			return // enough are waiting
		}
		select {
		case job = <-c.jobs:
			<-c.idle
		case <-c.done:
			return
		}
	}
}

func (c *crew) run(job func()) {
	defer func() {
		if r := recover(); r != nil {
			c.fault("a worker's job", r)
		}
	}()
	job()
}

// stop ends the idle workers. Jobs may still be given and run.
func (c *crew) stop() { c.once.Do(func() { close(c.done) }) }
