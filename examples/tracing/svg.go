package main

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
	"time"
)

// Lengths of the picture. It has its own ground, so that it can be read on a light page and on a dark one.
const (
	pictureWidth = 960.0
	margin       = 16.0
	nameLeft     = 62.0
	barsLeft     = 226.0
	barsRight    = 776.0
	tookRight    = 844.0
	saysLeft     = 858.0
	headHeight   = 66.0
	lineHeight   = 17.0
	traceGap     = 8.0
)

const style = `
text { font: 12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #1c2330 }
.faint { fill: #5b6675; font-size: 11px } .root { font-weight: 600 } .failed { fill: #c0322b } .inside { fill: #ffffff }
.number { text-anchor: end } .middle { text-anchor: middle } .tick { stroke: #dfe3e9 } .band { fill: #f4f6f9 }
`

// picture is an SVG file that is being written.
type picture struct {
	waterfall
	out *bufio.Writer
}

// svg writes the waterfall as a picture.
func (w waterfall) svg(to io.Writer) error {
	p := picture{w, bufio.NewWriter(to)}
	bottom := p.top(len(w.rows)) + lineHeight + traceGap // of the bars
	height := bottom + 30
	p.draw(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" aria-labelledby="title desc">`,
		pictureWidth, height, pictureWidth, height)
	p.draw(`<title id="title">Traces of requests that contend for one lock</title>`)
	p.draw(`<desc id="desc">A row for each span, and one axis of time: who waits for the lock, each attempt, who holds it.</desc>`)
	p.draw(`<style>%s</style>`, style)
	p.draw(`<rect x="0.5" y="0.5" width="%g" height="%g" rx="8" fill="#ffffff" stroke="#d5dae1"/>`, pictureWidth-1, height-1)
	p.legend()
	p.bands()
	for _, t := range w.ticks(8) {
		x := p.x(w.from.Add(t))
		p.draw(`<line class="tick" x1="%g" y1="%g" x2="%g" y2="%g"/>`, x, headHeight-8, x, bottom)
		p.text("faint middle", x, headHeight-12, fmt.Sprintf("%d ms", t.Milliseconds()))
		p.text("faint middle", x, bottom+14, fmt.Sprintf("%d ms", t.Milliseconds()))
	}
	for i, r := range w.rows {
		p.row(p.top(i), r)
	}
	p.holders(p.top(len(w.rows)))
	p.draw(`</svg>`)
	return p.out.Flush()
}

// draw writes a line; Flush tells if that fails.
func (p picture) draw(format string, args ...any) { _, _ = fmt.Fprintf(p.out, format+"\n", args...) }

func (p picture) text(class string, x, y float64, text string) {
	p.draw(`<text class="%s" x="%g" y="%g">%s</text>`, class, x, y, html.EscapeString(text))
}

func (p picture) x(t time.Time) float64 {
	return tenth(barsLeft + (barsRight-barsLeft)*t.Sub(p.from).Seconds()/max(p.to.Sub(p.from), 1).Seconds())
}

// top is where row i begins, or what follows the last one.
func (p picture) top(i int) float64 {
	traces := 0
	for n, r := range p.rows {
		if r.depth == 0 && n <= i {
			traces++
		}
	}
	if i == len(p.rows) {
		traces++
	}
	return headHeight + float64(i)*lineHeight + float64(traces-1)*traceGap
}

// bands are behind every other trace.
func (p picture) bands() {
	begin, odd := 0, false
	for i := range len(p.rows) + 1 {
		if i < len(p.rows) && p.rows[i].depth > 0 || i == 0 {
			continue
		}
		if odd = !odd; odd {
			p.draw(`<rect class="band" x="%g" y="%g" width="%g" height="%g"/>`, margin/2, p.top(begin)-traceGap/2+1,
				pictureWidth-margin, p.top(i)-p.top(begin)-1)
		}
		begin = i
	}
}

func (p picture) row(top float64, r row) {
	base, look := top+12.5, looks[r.kind]
	name, says := "", ""
	if r.depth == 0 {
		name = "root"
	}
	if r.Failed {
		says = "failed"
	}
	p.text("faint", margin, base, r.Service)
	p.text(name, nameLeft+12*float64(r.depth), base, r.label())
	p.draw(`<rect x="%g" y="%g" width="%g" height="%g" fill="%s"><title>%s</title></rect>`, p.x(r.From), top+(lineHeight-look.height)/2,
		max(tenth(p.x(r.To)-p.x(r.From)), 2), look.height, look.paint, html.EscapeString(r.Name+", "+r.took()))
	p.text("faint number", tookRight, base, r.took())
	p.text(says, saysLeft, base, r.says())
}

// holders are the numbers of the processes that hold the lock, one after the other.
func (p picture) holders(top float64) {
	p.text("root", margin, top+12.5, "the lock is held by app-")
	for _, h := range p.holds {
		from, to := p.x(h.from), p.x(h.to)
		p.draw(`<rect x="%g" y="%g" width="%g" height="14" fill="%s" stroke="#ffffff"/>`, from, top+1.5, max(tenth(to-from), 2), looks[holds].paint)
		p.text("inside middle", tenth((from+to)/2), top+12.5, string(h.process))
	}
}

func (p picture) legend() {
	x := margin
	for _, k := range kinds {
		look := looks[k]
		p.draw(`<rect x="%g" y="%g" width="22" height="%g" fill="%s"/>`, x, 22-look.height/2, look.height, look.paint)
		p.text("", x+28, 26, look.text)
		x += 28 + 7*float64(len(look.text)) + 18
	}
}

// tenth is as exact as a drawing needs.
func tenth(v float64) float64 { return math.Round(v*10) / 10 }
