package goredis_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/goredis"
)

// The least ACL for the recipes of package legacy.

func TestACLOfLegacySufficesAndIsMinimal(t *testing.T) {
	t.Parallel()
	s := guard(t)
	full, table := users(t)["legacy"], refusals(t, "legacy")
	live := func(rules []string) map[string]error {
		s.grant("legacy", rules...)
		store := goredis.New(dial(t, s.as("legacy")), app, hour)
		ctx, errs := t.Context(), map[string]error{}
		s.do("FLUSHALL")
		for _, key := range []string{"app:get", "app:tx expire", "app:tx delete"} {
			s.do("SET", key, "value")
		}
		_, errs["SetNXForever"] = store.SetNXForever(ctx, "setnx", "value")
		_, _, errs["Get"] = store.Get(ctx, "get")
		_, _, errs["GetSet"] = store.GetSet(ctx, "get", "value")
		_, _, errs["Left"] = store.Left(ctx, "get")
		_, errs["Expire"] = store.Expire(ctx, "get", long)
		_, errs["Delete"] = store.Delete(ctx, "get")
		_, errs["TxExpireIf"] = store.TxExpireIf(ctx, "tx expire", "value", long)
		_, errs["TxDeleteIf"] = store.TxDeleteIf(ctx, "tx delete", "value")
		_, errs["GetBit"] = store.GetBit(ctx, "bit", 0)
		_, errs["SetBit"] = store.SetBit(ctx, "bit", 0, true)
		return errs
	}
	for call, err := range live(full) {
		if err != nil {
			t.Errorf("%s = %v", call, err)
		}
	}
	for _, permission := range permissions(full) {
		row := table[permission]
		if permission[0] == '~' {
			row = table["the key pattern"]
		}
		if len(row) == 0 {
			t.Errorf("%s is superfluous: the page names nothing that is refused without it", permission)
		}
		for call, err := range live(without(full, permission)) {
			if (row[call] == refused) != isPermanent(err, "NOPERM") || row[call] != refused && err != nil {
				t.Errorf("without %s %s = %v; refused on the page: %v", permission, call, err, row[call])
			}
		}
	}
}
