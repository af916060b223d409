package locker

import "github.com/lockstep-go/lockstep/locker/contract"

// Locker is what a strategy makes and a [Client] uses. What the authors of strategies and of middleware
// need beside it is in package contract.
type Locker = contract.Locker

// MaxKeyLength is the length of the longest key, in bytes.
const MaxKeyLength = contract.MaxKeyLength
