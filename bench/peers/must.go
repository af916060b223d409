package main

import (
	"fmt"
	"math"
	"strings"
)

// A must is a limit that this project sets itself. A figure that is missing (NaN) does not meet it.
type must struct {
	what       string
	got        float64
	limit, aim float64
	most       bool // got has to be at least the limit
	unit       string
}

// atMost and atLeast take the limit as the aim if there is no further aim.
func atMost(what string, got, limit, aim float64, unit string) must {
	return must{what, got, limit, aim, false, unit}
}

func atLeast(what string, got, limit, aim float64, unit string) must {
	return must{what, got, limit, aim, true, unit}
}

func (m must) holds(limit float64) bool {
	if m.most {
		return m.got >= limit
	}
	return m.got <= limit
}

func (m must) verdict() string {
	switch {
	case math.IsNaN(m.got):
		return "not measured"
	case !m.holds(m.limit):
		return "**not met**"
	case m.aim != m.limit && m.holds(m.aim):
		return "met, and the aim"
	default:
		return "met"
	}
}

func musts(all []must) string {
	var s strings.Builder
	s.WriteString("| must | aim | measured | |\n|---|---|---|---|\n")
	for _, m := range all {
		sign, aim := "≤", ""
		if m.most {
			sign = "≥"
		}
		if m.aim != m.limit {
			aim = fmt.Sprintf("%s %s", sign, m.figure(m.aim))
		}
		fmt.Fprintf(&s, "| %s %s %s | %s | %s | %s |\n", m.what, sign, m.figure(m.limit), aim, m.figure(m.got), m.verdict())
	}
	return s.String()
}

// figure formats a figure, with two digits for small ones.
func (m must) figure(f float64) string {
	digits := 2
	if math.Abs(f) >= 100 || f == math.Trunc(f) {
		digits = 0
	}
	text := number(f, digits)
	if math.IsNaN(f) {
		return text
	}
	return strings.TrimSpace(text + " " + m.unit)
}
