package dialects_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/verify/race"
)

func TestContract(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		if d.name == sqlite.name {
			race.LeaveOut(t)
		}
		db := d.fresh(t)
		start := func(t *testing.T) (store, outside) { return db.store(), outside{t, db} }
		t.Run("Store", func(t *testing.T) {
			backendtest.Run(t, backendtest.Harness{MaxTTL: maxTTL, Resolution: d.resolution, NoWatch: true,
				New: func(t *testing.T) (backends.Store, backendtest.Outside) { return start(t) }})
		})
		t.Run("NumberedStore", func(t *testing.T) {
			backendtest.RunNumbered(t, backendtest.NumberedHarness{MaxTTL: maxTTL, Resolution: d.resolution, NoWatch: true, NoQueue: true,
				New: func(t *testing.T) (backends.NumberedStore, backendtest.Outside) { return start(t) }})
		})
		t.Run("FencedStore", func(t *testing.T) {
			backendtest.RunFenced(t, backendtest.FencedHarness{MaxTTL: maxTTL, Resolution: d.resolution, NoWatch: true, Clock: true,
				New: func(t *testing.T) (backends.FencedStore, backendtest.Outside) { return start(t) }})
		})
		t.Run("SharedStore", func(t *testing.T) {
			backendtest.RunShared(t, backendtest.SharedHarness{MaxTTL: maxTTL, Resolution: d.resolution, NoWatch: true,
				New: func(t *testing.T) (backends.SharedStore, backendtest.SharedOutside) { return start(t) }})
		})
		t.Run("Inspector", func(t *testing.T) {
			backendtest.RunInspector(t, backendtest.InspectorHarness{MaxTTL: maxTTL, Resolution: d.resolution, NoWatch: true,
				New: func(t *testing.T) (backendtest.InspectedStore, backendtest.SharedOutside) { return start(t) }})
		})
		t.Run("TransferStore", func(t *testing.T) {
			backendtest.RunTransfer(t, backendtest.TransferHarness{MaxTTL: maxTTL, Resolution: d.resolution, NoWatch: true,
				New: func(t *testing.T) (backends.TransferStore, backendtest.SharedOutside) { return start(t) }})
		})
	})
}
