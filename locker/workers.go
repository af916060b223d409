package locker

import "sync"

// workers make calls to a Locker that their callers may have to leave behind. A goroutine that has made such a call is
// kept for the next one, since growing its stack through a client library costs more than all else that a Client does;
// but only while a lock is held or asked for. After that none is left, so a Client needs no Close, and a test in fake
// time may end as soon as its last lock is released.
type workers struct {
	mu    sync.Mutex
	users int       // calls of Lock under way, and locks held
	idle  []*worker // the one that worked last at the end
}

type worker struct{ jobs chan job }

// job is a call, and what follows when it has returned and its goroutine is free for the next one, or when it has ended
// the goroutine.
type job interface {
	call()
	answered()
}

const maxIdle = 32 // after a burst

func (ws *workers) enter() {
	ws.mu.Lock()
	ws.users++
	ws.mu.Unlock()
}

func (ws *workers) exit() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.users--; ws.users == 0 {
		for _, w := range ws.idle {
			close(w.jobs)
		}
		clear(ws.idle)
		ws.idle = ws.idle[:0]
	}
}

// start lets a worker do j.
func (ws *workers) start(j job) {
	ws.mu.Lock()
	var w *worker
	if last := len(ws.idle) - 1; last >= 0 {
		w, ws.idle[last] = ws.idle[last], nil
		ws.idle = ws.idle[:last]
	}
	ws.mu.Unlock()
	if w == nil {
		w = &worker{jobs: make(chan job, 1)}
		go ws.work(w)
	}
	w.jobs <- j
}

func (ws *workers) work(w *worker) {
	var j job
	defer func() {
		if j != nil { // the Locker has ended the goroutine
			j.answered()
		}
	}()
	for j = range w.jobs {
		j.call()
		stays, done := ws.park(w), j
		j = nil
		done.answered()
		if !stays {
			return
		}
	}
}

func (ws *workers) park(w *worker) (stays bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.users == 0 || len(ws.idle) == maxIdle {
		return false
	}
	ws.idle = append(ws.idle, w)
	return true
}
