package proxy

import (
	"sync"
)

// idleWorkers is how many idle workers stay. A worker that stays keeps its grown stack,
// which is most of the cost of a new goroutine here.
const idleWorkers = 64

// workerPool runs jobs on goroutines, each at once; its callers bound how many there are
// at a time.
type workerPool struct {
	jobs chan func()
	idle chan struct{} // a place for each idle worker
	done chan struct{}
	once *sync.Once
	// protect runs a job that may panic; the worker continues.
	protect func(what string, job func()) bool
}

func newWorkerPool(protect func(what string, job func()) bool) workerPool {
	return workerPool{protect: protect, jobs: make(chan func()), idle: make(chan struct{}, idleWorkers), done: make(chan struct{}), once: new(sync.Once)}
}

// do runs the job on an idle worker or on a new one.
func (p *workerPool) do(job func()) {
	select {
	case p.jobs <- job:
	default:
		go p.work(job)
	}
}

func (p *workerPool) work(job func()) {
	for {
		p.protect("a worker's job", job)
		select {
		case p.idle <- struct{}{}:
		default:
			return // enough are waiting
		}
		select {
		case job = <-p.jobs:
			<-p.idle
		case <-p.done:
			return
		}
	}
}

// stop ends the idle workers. Jobs may still be given and run.
func (p *workerPool) stop() { p.once.Do(func() { close(p.done) }) }
