//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package command

import (
	"context"

	"github.com/lockstep-go/lockstep/locker"
)

const (
	canRun      = false
	guardName   = "lockstep-guard"
	starterName = "lockstep-start"
	keeperName  = "lockstep-keeper"
)

func (r *running) under(context.Context, *locker.Client, string, string) error { return nil }

func guardMain() int { return exitUsage }

func starterMain() int { return exitUsage }

func keeperMain(Program) int { return exitUsage }
