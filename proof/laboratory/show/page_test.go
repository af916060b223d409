package show

import (
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/proof/laboratory"
)

// checkPage reads the page as XML, strictly, and checks that it has so many timelines, none of them empty, and that it needs
// nothing from elsewhere.
func checkPage(t *testing.T, file string, timelines int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	drawings := drawingsIn(t, string(text))
	if len(drawings) != timelines {
		t.Errorf("%d timelines; want %d", len(drawings), timelines)
	}
	for _, d := range drawings {
		d.check(t)
	}
	for _, foreign := range []string{"<script", "src=", "url(", "@import", "<link", "http-equiv"} {
		if strings.Contains(string(text), foreign) {
			t.Errorf("the page has %s", foreign)
		}
	}
}

// A drawing is what a reader sees of an SVG.
type drawing struct {
	title, desc    string
	width, height  float64
	bars, shades   []box4
	circles, words []box4
}

type box4 struct {
	x1, y1, x2, y2 float64
	text           string
}

func (a box4) meets(b box4) bool {
	const rounding = 1e-6
	return a.x1 < b.x2-rounding && b.x1 < a.x2-rounding && a.y1 < b.y2-rounding && b.y1 < a.y2-rounding
}

func (d drawing) check(t *testing.T) {
	t.Helper()
	if d.title == "" || d.desc == "" {
		t.Errorf("%q has no title or no description", d.title)
	}
	if len(d.bars) == 0 || len(d.circles) == 0 {
		t.Errorf("%s: %d bars and %d steps", d.title, len(d.bars), len(d.circles))
	}
	two := strings.Contains(d.title, string(laboratory.TwoHold)) || strings.Contains(d.title, string(laboratory.TwoWork)) ||
		strings.Contains(d.title, string(laboratory.TooMany))
	if two != (len(d.shades) > 0) &&
		!strings.Contains(d.title, string(laboratory.Fenced)) {
		t.Errorf("%s: %d times are shown at which there are two", d.title, len(d.shades))
	}
	for _, all := range [][]box4{d.bars, d.shades, d.circles, d.words} {
		for i, b := range all {
			if b.x2 <= b.x1 || b.y2 <= b.y1 || b.x1 < 0 || b.y1 < 0 || b.x2 > d.width || b.y2 > d.height {
				t.Errorf("%s: %+v is empty or outside of %v × %v", d.title, b, d.width, d.height)
			}
			for _, other := range all[:i] {
				if b.meets(other) {
					t.Errorf("%s: %+v covers %+v", d.title, b, other)
				}
			}
		}
	}
	for _, c := range d.circles {
		for _, b := range append(d.words, d.bars...) {
			if c.meets(b) {
				t.Errorf("%s: step %+v covers %+v", d.title, c, b)
			}
		}
	}
	for _, s := range d.shades {
		under := 0
		for _, b := range d.bars {
			if s.x1 >= b.x1-0.2 && s.x2 <= b.x2+2.2 && s.y1 <= b.y1 && s.y2 >= b.y2 {
				under++
			}
		}
		if under < 2 {
			t.Errorf("%s: at %+v there are %d", d.title, s, under)
		}
	}
}

// drawingsIn fails the test if the page is not well-formed.
func drawingsIn(t *testing.T, page string) (drawings []drawing) {
	t.Helper()
	tokens := xml.NewDecoder(strings.NewReader(page))
	var d *drawing
	var path []xml.StartElement
	ids := map[string]bool{}
	for {
		token, err := tokens.Token()
		if errors.Is(err, io.EOF) {
			return drawings
		}
		if err != nil {
			t.Fatalf("the page is not well-formed: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			path = append(path, e.Copy())
			if id := attr(e, "id"); id != "" && ids[id] {
				t.Errorf("id %q is there twice", id)
			} else {
				ids[id] = true
			}
			if href := attr(e, "href"); href != "" && !strings.HasPrefix(href, "#") {
				t.Errorf("a link to %q", href)
			}
			switch {
			case e.Name.Local == "svg":
				size := strings.Fields(attr(e, "viewBox"))
				d = &drawing{width: number(t, size[2]), height: number(t, size[3])}
			case d != nil:
				d.add(t, e)
			}
		case xml.CharData:
			if d != nil {
				d.say(t, path[len(path)-2:], string(e))
			}
		case xml.EndElement:
			path = path[:len(path)-1]
			if e.Name.Local == "svg" {
				drawings, d = append(drawings, *d), nil
			}
		}
	}
}

func (d *drawing) add(t *testing.T, e xml.StartElement) {
	value := func(name string) float64 { return number(t, attr(e, name)) }
	switch class := attr(e, "class"); {
	case e.Name.Local == "rect":
		b := box4{value("x"), value("y"), value("x") + value("width"), value("y") + value("height"), class}
		if class == "both" {
			d.shades = append(d.shades, b)
		} else {
			d.bars = append(d.bars, b)
		}
	case e.Name.Local == "circle" && class == "mark":
		x, y, r := value("cx"), value("cy"), value("r")
		d.circles = append(d.circles, box4{x - r, y - r, x + r, y + r, class})
	}
}

// say takes a letter to be 7 wide and 12 high, which is more than a usual font of this size needs.
func (d *drawing) say(t *testing.T, path []xml.StartElement, text string) {
	parent, e := path[0].Name.Local, path[1]
	switch name := e.Name.Local; {
	case name == "title" && parent == "svg":
		d.title = text
	case name == "desc":
		d.desc = text
	case name == "text" && attr(e, "class") != "number": // those are in their circles
		wide := 7 * float64(len([]rune(text)))
		x, y := number(t, attr(e, "x")), number(t, attr(e, "y"))+number(t, attr(e, "dy"))
		if attr(e, "text-anchor") == "middle" {
			x -= wide / 2
		}
		d.words = append(d.words, box4{x, y - 10, x + wide, y + 2, text})
	}
}

func attr(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Error(err)
	}
	return n
}

// TestStepsAtOneInstantAreDrawnBesideEachOther, also at the edge.
func TestStepsAtOneInstantAreDrawnBesideEachOther(t *testing.T) {
	for _, instants := range [][]int{{0}, {0, 0, 0, 0}, {0, 1000, 1000, 1000, 1000}, {0, 500, 500, 1000, 1000, 1000, 1000, 1000, 1000}} {
		c := laboratory.Cell{Row: "row", Outcome: laboratory.TwoHold, Detail: "detail", Scenario: laboratory.Scenario{Name: "column"}}
		c.Record = laboratory.Record{Began: instant(0), Holds: []laboratory.Hold{{Who: "Alice", From: instant(0), Until: instant(1000), Works: instant(1000)}, {Who: "Bob", From: instant(500), Until: instant(1000), Works: instant(1000)}}}
		for _, ms := range instants {
			c.Record.Events = append(c.Record.Events, laboratory.Event{At: instant(ms), Who: "Alice", Text: "step"}, laboratory.Event{At: instant(ms), Who: "Bob", Text: "step"})
		}
		var text strings.Builder
		if err := page.Execute(&text, sheet{Parts: []part{{Figures: []figure{draw(c, "command")}}}}); err != nil {
			t.Fatal(err)
		}
		drawings := drawingsIn(t, text.String())
		if len(drawings) != 1 || len(drawings[0].circles) != 2*len(instants) {
			t.Fatalf("%v: %+v", instants, drawings)
		}
		drawings[0].check(t)
	}
}

func instant(ms int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

// TestTheTableFitsAWindowOf1280Pixels takes a letter to be 8 pixels wide, which is more than 0.85rem needs.
// What does not fit has to scroll.
func TestTheTableFitsAWindowOf1280Pixels(t *testing.T) {
	tables := map[string]*laboratory.Table{} // by their columns
	for name, cells := range laboratory.Expected {
		row := laboratory.Result{Row: laboratory.Row{Name: name}, Speed: &laboratory.Speed{
			Commands: 10, Trips: 10, P50: 10 * time.Millisecond, P99: 100 * time.Millisecond, HandOver: 100 * time.Millisecond,
		}}
		columns := slices.Sorted(maps.Keys(cells))
		table := tables[strings.Join(columns, " ")]
		if table == nil {
			table = &laboratory.Table{}
			tables[strings.Join(columns, " ")] = table
			for _, column := range columns {
				table.Columns = append(table.Columns, laboratory.Scenario{Name: column})
			}
		}
		for i, column := range columns {
			row.Cells = append(row.Cells, laboratory.Cell{Row: name, Scenario: table.Columns[i], Outcome: cells[column]})
		}
		table.Results = append(table.Results, row)
	}
	r := report{laboratory.Report{}}
	for _, table := range tables {
		r.Tables = append(r.Tables, *table)
	}
	wide, padding := 0, 18
	for _, g := range r.sheet().Grids {
		sum := 0
		for i, head := range g.Head {
			width := utf8.RuneCountInString(head)
			for _, l := range g.Lines {
				width = max(width, utf8.RuneCountInString(l[i].Text))
			}
			sum += 8*width + padding
		}
		wide = max(wide, sum)
	}
	if len(r.Tables) != 2 || wide < 300 {
		t.Errorf("%d tables, the widest of %d: is the test looking at the right thing?", len(r.Tables), wide)
	}
	const window, body = 1280 - 16, 76*16 + 2*16 // without the scroll bar; max-width and padding of the page
	if wide > body-2*16 || body > window {
		t.Errorf("the table is %d wide, the page %d, the window %d", wide, body, window)
	}
	for _, want := range []string{"max-width: 76rem", ".scroll { overflow-x: auto; }", `<div class="scroll">`} {
		if !strings.Contains(pageText, want) {
			t.Errorf("page.html has no %q", want)
		}
	}
}
