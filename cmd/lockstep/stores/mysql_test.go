package stores

import "testing"

func TestConnectionsToMySQLHaveAName(t *testing.T) {
	for given, want := range map[string]string{
		"":                         "program_name:lockstep",
		"team:payments":            "team:payments,program_name:lockstep",
		"program_name:mine":        "program_name:mine",
		"team:a,program_name:mine": "team:a,program_name:mine",
		"old_program_name:mine":    "old_program_name:mine,program_name:lockstep",
	} {
		if got := named(given); got != want {
			t.Errorf("named(%q) = %q; want %q", given, got, want)
		}
	}
}
