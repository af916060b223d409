//go:build !linux

package natsstore_test

import "errors"

func copyAtSync(string, string) error { return errors.ErrUnsupported }
