package locker

import (
	"sync"
	"time"
)

// workers make calls to a Locker that their callers may have to leave behind. A goroutine that has made such a call is
// kept for the next one: growing its stack through a client library costs more than all else that a Client does.
// None is kept for longer than two sweeps without work, so a Client needs no Close.
type workers struct {
	mu     sync.Mutex
	idle   []*worker // the one that worked last at the end
	sweeps int
	timer  *time.Timer
	armed  bool
}

type worker struct {
	jobs  chan job
	swept int // the number of sweeps when it became idle
}

// job is a call, and what follows when it has returned and its goroutine is free for the next one.
type job interface {
	call()
	answered()
}

const sweepInterval = 100 * time.Millisecond

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
	for j := range w.jobs {
		j.call()
		ws.park(w)
		j.answered()
	}
}

func (ws *workers) park(w *worker) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.swept = ws.sweeps
	ws.idle = append(ws.idle, w)
	ws.arm()
}

func (ws *workers) arm() {
	switch {
	case ws.armed || len(ws.idle) == 0:
		return
	case ws.timer == nil:
		ws.timer = time.AfterFunc(sweepInterval, ws.sweep)
	default:
		ws.timer.Reset(sweepInterval)
	}
	ws.armed = true
}

// sweep ends those that had nothing to do since the sweep before.
func (ws *workers) sweep() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.armed = false
	ended := 0
	for ended < len(ws.idle) && ws.idle[ended].swept < ws.sweeps {
		close(ws.idle[ended].jobs)
		ended++
	}
	n := copy(ws.idle, ws.idle[ended:])
	clear(ws.idle[n:])
	ws.idle = ws.idle[:n]
	ws.sweeps++
	ws.arm()
}
