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
	done  chan struct{} // holds one note that the job is done
	swept int           // the number of sweeps when it became idle
}

type job interface{ run() }

const sweepInterval = 100 * time.Millisecond

// start runs j on a worker. The caller waits for its done, then parks it; or leaves it.
func (ws *workers) start(j job) *worker {
	ws.mu.Lock()
	var w *worker
	if last := len(ws.idle) - 1; last >= 0 {
		w, ws.idle[last] = ws.idle[last], nil
		ws.idle = ws.idle[:last]
	}
	ws.mu.Unlock()
	if w == nil {
		w = &worker{jobs: make(chan job, 1), done: make(chan struct{}, 1)}
		go w.work()
	}
	w.jobs <- j
	return w
}

func (w *worker) work() {
	for j := range w.jobs {
		j.run()
		w.done <- struct{}{}
	}
}

// leave parks w when it is done, and calls then.
func (ws *workers) leave(w *worker, then func()) {
	go func() {
		<-w.done
		ws.park(w)
		then()
	}()
}

// park keeps w, whose job is done, for the next one.
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
