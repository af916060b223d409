// Package address finds the server of a Locker, for the text of an error. A Client that stops
// waiting for an attempt has no answer that names it.
package address

// Of returns the address of the server beneath a Locker or a store with a method Endpoint. It
// returns "" for all others, and if there are several servers. For a store in a file it is "file "
// and the path. It sends nothing.
func Of(l any) string {
	if has, ok := l.(interface{ Endpoint() string }); ok {
		return has.Endpoint()
	}
	return ""
}
