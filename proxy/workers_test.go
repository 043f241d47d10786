package proxy

import (
	"sync"
	"sync/atomic"
	"testing"
)

func unprotected(_ string, job func()) bool { job(); return true }

func TestWorkersRunAllAtOnce(t *testing.T) {
	c := newWorkerPool(unprotected)
	defer c.stop()
	const n = 200
	var meet sync.WaitGroup
	meet.Add(n)
	var done sync.WaitGroup
	for range n {
		done.Add(1)
		c.do(func() {
			meet.Done()
			meet.Wait() // ends only if all run at the same time
			done.Done()
		})
	}
	done.Wait()
}

func TestWorkersAreUsedAgain(t *testing.T) {
	c := newWorkerPool(unprotected)
	defer c.stop()
	var ran atomic.Int64
	for range 1000 {
		done := make(chan struct{})
		c.do(func() { ran.Add(1); close(done) })
		<-done
	}
	if ran.Load() != 1000 {
		t.Errorf("ran %d", ran.Load())
	}
	if n := len(c.idle); n > idleWorkers {
		t.Errorf("%d idle workers", n)
	}
}

func TestStoppedPoolStillRuns(t *testing.T) {
	c := newWorkerPool(unprotected)
	c.stop()
	c.stop() // twice is fine
	done := make(chan struct{})
	c.do(func() { close(done) })
	<-done
}
