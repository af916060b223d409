package show

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/proof/laboratory"
)

// A figure is the timeline of a record, to scale: a lane for each who takes part, bars for what they believed, and a number
// for each step of the story, which the page tells below. All lengths are in units of the drawing.
type figure struct {
	ID, Title, Desc, Command string
	Width, Height            float64
	Top, Bottom              float64 // of the lanes
	Left, Right              float64 // of the time
	Lanes                    []lane
	Bars, Shades             []bar
	Ticks                    []tick
	Marks                    []mark
}

type lane struct {
	Name string
	Y    float64 // of its middle
}

// A bar is a hold, or a time at which there were two.
type bar struct {
	Class               string // lease, work, asks or both
	X, Y, Width, Height float64
	Says                string
}

type tick struct {
	X     float64
	Label string
}

// A mark is the number of a step, above the lanes, and where it belongs.
type mark struct {
	Number        int
	CX, CY, X, Y  float64
	At, Who, Text string
}

const (
	figureWidth = 760.0
	nameWidth   = 84.0 // before the lanes
	laneHeight  = 30.0
	barHeight   = 14.0
	markRadius  = 9.0
	markGap     = 2*markRadius + 3
	axisHeight  = 26.0
	rightMargin = 24.0
)

// draw makes the figure of a cell.
func draw(c laboratory.Cell, command string) figure {
	story := c.Record.Story()
	f := figure{
		ID: "fig-" + c.Scenario.Name + "-" + c.Row, Title: c.Row + ", " + c.Scenario.Name + ": " + string(c.Outcome),
		Desc: c.Detail, Command: command, Width: figureWidth,
		Left: nameWidth, Right: figureWidth - rightMargin, Top: 2*markRadius + 14,
	}
	for _, e := range story {
		if f.lane(e.Who) < 0 {
			f.Lanes = append(f.Lanes, lane{e.Who, f.Top + (float64(len(f.Lanes))+0.5)*laneHeight})
		}
	}
	f.Bottom = f.Top + float64(len(f.Lanes))*laneHeight
	f.Height = f.Bottom + axisHeight

	from, to := c.Record.Began, c.Record.End()
	if len(story) > 0 { // what was prepared before is no part of it
		from = story[0].At
	}
	to = to.Add(to.Sub(from) / 50)
	x := func(t time.Time) float64 {
		if !to.After(from) {
			return f.Left
		}
		return tenth(f.Left + (f.Right-f.Left)*t.Sub(from).Seconds()/to.Sub(from).Seconds())
	}
	f.addBars(c.Record, x)
	f.addMarks(story, from, x)
	f.addTicks(from, to, x)
	return f
}

func (f *figure) lane(who string) int {
	return slices.IndexFunc(f.Lanes, func(l lane) bool { return l.Name == who })
}

func (f *figure) addBars(r laboratory.Record, x func(time.Time) float64) {
	width := func(from, to time.Time) float64 { return tenth(max(x(to)-x(from), 2)) }
	add := func(class, who string, from, to time.Time, height float64, says string) {
		f.Bars = append(f.Bars, bar{class, x(from), f.Lanes[f.lane(who)].Y - height/2, width(from, to), height, who + " " + says})
	}
	for _, a := range r.Asked {
		add("asks", a.Who, a.From, a.To, barHeight/2, "asks, and is refused")
	}
	for _, h := range r.Holds {
		add("lease", h.Who, h.From, h.Until, barHeight, "has a lease")
		if h.Works.After(h.Until) {
			add("work", h.Who, h.Until, h.Works, barHeight, "goes on without one")
		}
	}
	for _, s := range r.Works() {
		f.Shades = append(f.Shades, bar{
			"both", x(s.From), f.Top, width(s.From, s.To), f.Bottom - f.Top,
			fmt.Sprintf("%s and %s at once, for %v", s.First, s.Second, s.Length().Round(time.Millisecond)),
		})
	}
}

// addMarks puts the numbers as close to their instants as they fit beside each other.
func (f *figure) addMarks(story []laboratory.Event, from time.Time, x func(time.Time) float64) {
	for i, e := range story {
		cx := x(e.At)
		if i > 0 {
			cx = tenth(max(cx, f.Marks[i-1].CX+markGap))
		}
		f.Marks = append(f.Marks, mark{
			Number: i + 1, CX: cx, CY: markRadius + 4, X: x(e.At), Y: f.Lanes[f.lane(e.Who)].Y,
			At: fmt.Sprintf("%.3f s", e.At.Sub(from).Seconds()), Who: e.Who, Text: e.Text,
		})
	}
	limit := f.Width - markRadius - 1
	for i := len(f.Marks) - 1; i >= 0 && f.Marks[i].CX > limit; i-- {
		f.Marks[i].CX = limit
		limit -= markGap
	}
}

// addTicks divides the time into steps that are easy to read.
func (f *figure) addTicks(from, to time.Time, x func(time.Time) float64) {
	step := niceStep(to.Sub(from))
	for at := time.Duration(0); !from.Add(at).After(to); at += step {
		f.Ticks = append(f.Ticks, tick{x(from.Add(at)), label(at)})
	}
}

// tenth is as exact as a drawing needs.
func tenth(v float64) float64 { return math.Round(v*10) / 10 }

// niceStep is the least of 1, 2, 5, 10, 20, 50, … ms that divides d into eight parts or fewer.
func niceStep(d time.Duration) time.Duration {
	for unit := time.Millisecond; ; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if n*unit*8 >= d {
				return n * unit
			}
		}
	}
}

func label(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%g s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}
