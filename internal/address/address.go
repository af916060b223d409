// Package address finds out which server a Locker asks, for the text of an error: a Client that
// leaves an attempt has no answer which could tell.
package address

// Of is the address of the server beneath a Locker, a store or what it is made of, by a method
// Endpoint; empty for all others, and where there are several servers. It sends nothing.
func Of(l any) string {
	if has, ok := l.(interface{ Endpoint() string }); ok {
		return has.Endpoint()
	}
	return ""
}
