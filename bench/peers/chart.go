package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A chart shows one metric of a table: a dot for each median and a line for its range. The scale is
// logarithmic, since contenders that poll are far from contenders that are woken.
type chart struct {
	file   string // without .svg
	table  *table
	metric int
}

func (c chart) title() string { return c.table.title + ": " + c.table.metrics[c.metric].name }

var colours = map[kind]color.Color{
	reference: color.RGBA{0x88, 0x88, 0x88, 0xff},
	peer:      color.RGBA{0x35, 0x6c, 0xb0, 0xff},
	ours:      color.RGBA{0xc4, 0x3c, 0x2c, 0xff},
}

// empty reports that there is nothing to draw.
func (c chart) empty() bool {
	return !slices.ContainsFunc(c.table.rows, func(r *row) bool { return len(r.figures[c.metric]) > 0 && slices.Min(r.figures[c.metric]) > 0 })
}

const chartWidth = 24 * vg.Centimeter

// scale is about the width beside the names of the rows.
func (c chart) scale() vg.Length {
	longest := 0
	for _, r := range c.table.rows {
		longest = max(longest, len(r.name))
	}
	return chartWidth - vg.Length(longest+6)*perLetter*0.8
}

// draw writes the chart to a file, as SVG.
func (c chart) draw(file string) error {
	p := plot.New()
	p.Title.Text = c.title()
	p.X.Label.Text = c.table.metrics[c.metric].label()
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks{c.scale()}
	for _, style := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label} {
		style.Font.Typeface, style.Font.Variant = "Liberation", "Sans"
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	p.Add(grid)
	names := make([]string, len(c.table.rows))
	lowest, highest := math.Inf(1), math.Inf(-1)
	for i, r := range c.table.rows {
		y := len(names) - 1 - i // the first is at the top
		names[y] = r.name
		figures := r.figures[c.metric]
		if len(figures) == 0 {
			names[y] += " (failed)"
			continue
		}
		median, least, most := lab.Spread(figures)
		if least <= 0 {
			names[y] += fmt.Sprintf(" (%g)", median)
			continue // it has no logarithm
		}
		lowest, highest = min(lowest, least), max(highest, most)
		spread, err := plotter.NewLine(plotter.XYs{{X: least, Y: float64(y)}, {X: most, Y: float64(y)}})
		if err != nil {
			return err
		}
		spread.Color, spread.Width = colours[r.kind], vg.Points(1.5)
		dot, err := plotter.NewScatter(plotter.XYs{{X: median, Y: float64(y)}})
		if err != nil {
			return err
		}
		dot.Color, dot.Radius, dot.Shape = colours[r.kind], vg.Points(4), draw.CircleGlyph{}
		p.Add(spread, dot)
	}
	p.NominalY(names...)
	p.Y.Tick.Length, p.Y.Width, p.Y.Padding = 0, 0, vg.Points(14)
	p.Y.Min, p.Y.Max = -0.5, float64(len(names))-0.5
	p.X.Min, p.X.Max = lowest/1.3, highest*1.3
	return save(p, chartWidth, vg.Length(2.5+0.65*float64(len(names)))*vg.Centimeter, file)
}

// save leaves a margin, and names further fonts of the same widths.
func save(p *plot.Plot, width, height vg.Length, file string) error {
	p.Title.Padding, p.X.Label.Padding = vg.Points(6), vg.Points(4)
	svg := vgsvg.New(width, height)
	all := draw.New(svg)
	all.SetColor(p.BackgroundColor)
	all.Fill(all.Path())
	const margin = 8
	p.Draw(draw.Crop(all, margin, -margin, margin, -margin))
	var text bytes.Buffer
	if _, err := svg.WriteTo(&text); err != nil {
		return err
	}
	const laidOut, alike = "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;"
	return os.WriteFile(file, bytes.ReplaceAll(text.Bytes(), []byte(laidOut), []byte(alike)), 0o644)
}

// label also says which direction is better.
func (m metric) label() string {
	if m.most {
		return m.name + " (median and range; more is better →)"
	}
	return m.name + " (median and range; ← less is better)"
}

// ticks are at 1, 2 and 5 of each power of ten. If their numbers do not fit beside each other,
// there are fewer ticks, or fewer of them have a number.
type ticks struct {
	width vg.Length // of the scale
}

// perLetter is the width of a digit, with room for wider fonts than the font of the layout.
const perLetter = vg.Length(7.5)

func (t ticks) Ticks(least, most float64) []plot.Tick {
	for _, steps := range [][]float64{{1, 2, 5}, {1, 3}} {
		if all := ticksOf(least, most, steps, 1); t.fit(all, least, most) {
			return all
		}
	}
	for every := 1; ; every++ {
		if all := ticksOf(least, most, []float64{1}, every); t.fit(all, least, most) || every > 9 {
			return all
		}
	}
}

func (t ticks) fit(all []plot.Tick, least, most float64) bool {
	end := vg.Length(math.Inf(-1))
	for _, tick := range all {
		if tick.Label == "" {
			continue
		}
		half := vg.Length(len(tick.Label)+1) * perLetter / 2
		at := t.width * vg.Length(math.Log(tick.Value/least)/math.Log(most/least))
		if at-half < end {
			return false
		}
		end = at + half
	}
	return true
}

// ticksOf puts a number at every n-th power of ten, where n is every.
func ticksOf(least, most float64, steps []float64, every int) (all []plot.Tick) {
	for power := math.Floor(math.Log10(least)); power <= math.Log10(most); power++ {
		for _, n := range steps {
			at := n * math.Pow(10, power)
			if at < least || at > most {
				continue
			}
			tick := plot.Tick{Value: at}
			if int(power)%every == 0 {
				tick.Label = number(at, max(0, int(-power)))
			}
			all = append(all, tick)
		}
	}
	return all
}
