//go:build !linux

package main

import (
	"errors"
	"os"
)

const spinnerEnv = "LOCKSTEP_BENCH_SPINNER"

const serverCPU = 1

func pinSelf() error { return errors.New("CPUs can be chosen on Linux only: use -pin=false") }

func pin(int, int) error { return nil }

func keepAwake() (stop func()) { return func() {} }

func spin(string) { os.Exit(0) }
