package daemon

import "testing"

func TestReservationsAreDistinct(t *testing.T) {
	taken := map[int]bool{}
	for range 300 {
		r, err := ReservePort()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if taken[r.Number] {
			t.Fatalf("port %d was given twice", r.Number)
		}
		taken[r.Number] = true
	}
}
