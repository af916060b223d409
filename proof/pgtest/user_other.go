//go:build !unix

package pgtest

import (
	"os"
	"os/exec"
)

var sigStop, sigCont, sigKill = os.Kill, os.Kill, os.Kill

func asUser(*exec.Cmd) {}

func give(string) error { return nil }

func signalChildren(int, os.Signal) []int { return nil }

func awaitEnd([]int) {}
