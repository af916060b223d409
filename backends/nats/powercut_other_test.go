//go:build !linux

package nats_test

import "errors"

func copyAtSync(string, string) error { return errors.ErrUnsupported }
