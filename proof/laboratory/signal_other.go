//go:build !unix

package laboratory

import "fmt"

// Without signals no process can be stopped where it is.
func (o *owner) freeze() error { return fmt.Errorf("stopping a process: %w", errNotHere) }
func (o *owner) thaw() error   { return fmt.Errorf("stopping a process: %w", errNotHere) }
