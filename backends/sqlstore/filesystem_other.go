//go:build !linux

package sqlstore

// networkFileSystem does not know: only Linux tells it in a portable way.
func networkFileSystem(string) string { return "" }
