//go:build !unix && !js

package mcptool

import (
	"os"
	"os/exec"
)

func leads(*exec.Cmd) {}

// signalGroup kills a process at the second call: this system has no signal to ask first.
func signalGroup(leader *os.Process, kill bool) {
	if kill {
		_ = leader.Kill()
	}
}

func endGroup(*os.Process) {}

func guard(int) (release func()) { return func() {} }
