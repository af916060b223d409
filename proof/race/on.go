//go:build race

package race

// Enabled is whether the race detector watches this test binary.
const Enabled = true
