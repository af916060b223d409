package pagelocker

import "testing"

// Holds of a semaphore that were there together are below each other, and holds of a lock are in one
// line, though the ends of those of others are as exact as the interval.
func TestBarsThatWereThereTogetherAreBelowEachOther(t *testing.T) {
	one := lanes([]bar{{X: 100, Width: 50}, {X: 140, Width: 100}, {X: 220, Width: forever}})
	for _, b := range one {
		if b.Y != 1 || b.Height != 8 {
			t.Errorf("the bar at %v is at %v, %v high; want the whole height", b.X, b.Y, b.Height)
		}
	}
	two := lanes([]bar{{X: 300, Width: 100}, {X: 100, Width: 190}, {X: 150, Width: forever}})
	if two[0].Y != two[2].Y || two[0].Y == two[1].Y || two[1].Height != 4 || two[1].Foot() != 7.5 {
		t.Errorf("%+v; want the long one below the two others", two)
	}
	many := make([]bar, 100)
	for i := range many {
		many[i].Width = forever
	}
	for _, b := range lanes(many) {
		if b.Height != 2 || b.Y < 1 || b.Y > 7 {
			t.Fatalf("%+v is not on the strip", b)
		}
	}
}
