package matrix

import (
	"html/template"
	"io"
)

// Page writes the table as a page that needs no network: how it was made, a picture, and the command
// of each cell.
func (t *Table) Page(w io.Writer, title, made string) error {
	type square struct {
		X, Y    int
		Colour  string
		Text    string
		Command string
	}
	type label struct {
		X, Y int
		Text string
	}
	type picture struct {
		Where         string
		Width, Height int
		Rows, Columns []label
		Squares       []square
	}
	const left, top, width, height = 190, 90, 118, 30
	colours := map[Verdict]string{Safe: "#2c9a5b", Unavailable: "#e0a526", Inverted: "#8a5bb5", Violated: "#c8402f"}
	var pictures []picture
	for _, g := range t.grids() {
		p := picture{Where: g.where, Width: left + width*len(g.faults) + 60, Height: top + height*len(g.strategies) + 10}
		for x, fault := range g.faults {
			p.Columns = append(p.Columns, label{left + x*width + width/2, top - 10, fault})
		}
		for y, strategy := range g.strategies {
			p.Rows = append(p.Rows, label{left - 10, top + y*height + height*2/3, strategy})
			for x, fault := range g.faults {
				if c, ok := g.at(strategy, fault); ok {
					p.Squares = append(p.Squares, square{left + x*width, top + y*height, colours[c.Verdict()], c.String(), c.Command})
				}
			}
		}
		pictures = append(pictures, p)
	}
	return page.Execute(w, map[string]any{"Title": title, "Made": made, "Pictures": pictures, "Cells": t.Cells()})
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{"plus": func(a, b int) int { return a + b }}).Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{{.Title}}</title>
<style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1200px; background: #fff; color: #1b2430 }
table { border-collapse: collapse } td, th { text-align: left; padding: .2em 1em .2em 0; border-bottom: 1px solid #e3e7ec }
svg text { font: 12px system-ui, sans-serif; fill: #1b2430 } svg .in { fill: #fff }
</style>
<h1>{{.Title}}</h1>
<p>{{.Made}}</p>
<p>S: safe in all trials. U: for that long at most nobody could have the lock, where that was measured, and nothing worse.
N: numbers fell or came twice in so many trials, and nothing worse. V: two held at once, or an update was lost, in so many.</p>
{{range .Pictures}}<h2>On {{.Where}}</h2>
<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" role="img" aria-label="strategies by faults">
{{range .Columns}}<text x="{{.X}}" y="{{.Y}}" text-anchor="start" transform="rotate(-25 {{.X}} {{.Y}})">{{.Text}}</text>
{{end}}{{range .Rows}}<text x="{{.X}}" y="{{.Y}}" text-anchor="end">{{.Text}}</text>
{{end}}{{range .Squares}}<g><title>{{.Command}}</title><rect x="{{.X}}" y="{{.Y}}" width="114" height="26" rx="3" fill="{{.Colour}}"/><text class="in" x="{{plus .X 57}}" y="{{plus .Y 17}}" text-anchor="middle">{{.Text}}</text></g>
{{end}}</svg>
{{end}}<h2>What reproduces it</h2>
<table><tr><th>on<th>strategy<th>fault<th>found<th>command</tr>
{{range .Cells}}<tr><td>{{.Where}}<td>{{.Strategy}}<td>{{.Fault}}<td>{{.}}<td><code>{{.Command}}</code></tr>
{{end}}</table></html>
`))
