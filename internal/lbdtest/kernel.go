package lbdtest

import (
	"lbd.dev/lbd/internal/announce"
)

// kernel is what a process calls on its machine.
type kernel struct {
	p *Process
	h *Host
}

// call lets the time of a system call pass.
func (k kernel) call() error { return k.p.sleep(k.h.net.call()) }

// Mutex makes a lock for goroutines of the process.
func (k kernel) Mutex() announce.Mutex { return &mutex{k.p, make(chan struct{}, 1)} }

// mutex is a lock that simulated time passes for while somebody waits, and that nobody gets
// in a frozen process. So whatever reads the clock once it has the lock, as drivers do, finds
// that it was frozen.
type mutex struct {
	p    *Process
	held chan struct{}
}

func (m *mutex) Lock() {
	m.held <- struct{}{}
	_ = m.p.Wait() // a killed process ends at its next call
}

func (m *mutex) TryLock() bool {
	if !m.p.Running() {
		return false
	}
	select {
	case m.held <- struct{}{}:
		return true
	default:
		return false
	}
}

func (m *mutex) Unlock() { <-m.held }

// signal puts one token into a channel of capacity one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
