package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// A headline is a figure to quote. It is given as the range of several runs, never as the best run.
type headline struct {
	what string
	got  float64
	unit string
}

// headlines returns the headlines of several runs as a table.
func headlines(runs []map[string]*report) string {
	figures := map[string][]float64{}
	var order []headline
	for _, reports := range runs {
		for _, c := range studies {
			r := reports[c.id]
			if r == nil {
				continue
			}
			for _, h := range r.headlines {
				if !slices.ContainsFunc(order, func(o headline) bool { return o.what == h.what }) {
					order = append(order, h)
				}
				if !math.IsNaN(h.got) && !math.IsInf(h.got, 0) {
					figures[h.what] = append(figures[h.what], h.got)
				}
			}
		}
	}
	var s strings.Builder
	from := fmt.Sprintf("range of %d runs", len(runs))
	if len(runs) == 1 {
		from = "one run"
	}
	fmt.Fprintf(&s, "| | %s, %s |\n|---|---|\n", from, time.Now().UTC().Format(time.DateOnly))
	for _, h := range order {
		fmt.Fprintf(&s, "| %s | %s |\n", h.what, h.span(figures[h.what], len(runs)))
	}
	return s.String()
}

// span also counts the runs without a figure. Without them the range would look too good.
func (h headline) span(all []float64, runs int) string {
	if len(all) == 0 {
		return "not measured"
	}
	digits := 1
	if slices.Max(all) >= 100 {
		digits = 0
	}
	least, most := number(slices.Min(all), digits), number(slices.Max(all), digits)
	text := least
	if least != most {
		text += " to " + most
	}
	text = strings.TrimSpace(text + " " + h.unit)
	if len(all) < runs {
		text += fmt.Sprintf(" (none in %d of the runs)", runs-len(all))
	}
	return text
}
