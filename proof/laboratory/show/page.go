package show

import (
	_ "embed"
	"html/template"
	"os"
	"strings"

	"github.com/lockstep-go/lockstep/proof/laboratory"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// A sheet is what the page shows.
type sheet struct {
	On, Took string
	Grids    []grid
	Verdicts [][2]string
	Parts    []part
}

// A grid is a table.
type grid struct {
	Title string
	Head  []string
	Lines [][]box
	Notes [][2]string
}

// A box is a field of the table. Figure is the one that shows it, if there is one.
type box struct{ Text, Class, Figure string }

// A part has the figures of one scenario.
type part struct {
	Name, About string
	Figures     []figure
}

// writePage writes a page that needs nothing else: no script, no font, no network.
func (r report) writePage(file string) error {
	var text strings.Builder
	if err := page.Execute(&text, r.sheet()); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}

func (r report) sheet() sheet {
	s := sheet{On: r.On, Took: r.Took.Round(100_000_000).String(), Verdicts: r.verdicts()}
	for _, t := range r.Tables {
		s.Grids = append(s.Grids, r.grid(t))
	}
	for _, name := range r.columns() {
		p := part{Name: name}
		var abouts []string
		for _, t := range r.Tables {
			for _, sc := range t.Columns {
				if sc.Name == name {
					abouts = append(abouts, sc.About)
				}
			}
		}
		p.About = strings.Join(abouts, "; ")
		for _, c := range r.seen() {
			if c.Scenario.Name == name {
				p.Figures = append(p.Figures, draw(c, r.command(c)))
			}
		}
		if len(p.Figures) > 0 {
			s.Parts = append(s.Parts, p)
		}
	}
	return s
}

func (r report) grid(t laboratory.Table) grid {
	g := grid{Title: t.Title, Head: r.head(t), Notes: append(r.notes(t), missing(t)...)}
	for _, row := range t.Results {
		fields := r.line(t, row)
		line := make([]box, len(fields))
		for i, f := range fields {
			line[i] = box{Text: f, Class: "number"}
			if i == 0 {
				line[i].Class = "name"
			}
		}
		for i, c := range row.Cells {
			b := &line[len(g.Head)-len(t.Columns)+i]
			b.Class = "fine"
			if c.Outcome.IsAnomaly() {
				b.Class, b.Figure = "anomaly", draw(c, "").ID
			}
			if c.Outcome == laboratory.Fenced {
				b.Class = "caught"
			}
		}
		g.Lines = append(g.Lines, line)
	}
	return g
}
