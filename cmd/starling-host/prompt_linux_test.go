package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/starling-host/starling/internal/terminal"
	"golang.org/x/sys/unix"
)

// pseudoTerminal returns both ends of a new terminal.
func pseudoTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there are no pseudo-terminals here:", err)
	}
	t.Cleanup(func() { keyboard.Close() })
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skip("there are no pseudo-terminals here:", err)
	}
	t.Cleanup(func() { terminal.Close() })
	return keyboard, terminal
}

func echoes(t *testing.T, tty *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

func TestAskHidden(t *testing.T) {
	keyboard, tty := pseudoTerminal(t)
	if _, err := keyboard.WriteString("hunter2hunter2\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := terminal.ReadHidden(t.Context(), tty); err != nil || string(line) != "hunter2hunter2" {
		t.Errorf("%q, %v", line, err)
	}
}

// Somebody who gives up gets the terminal back as it was, at once.
func TestAskHiddenGivesUp(t *testing.T) {
	_, tty := pseudoTerminal(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := terminal.ReadHidden(ctx, tty)
		done <- err
	}()
	for echoes(t, tty) { // until it asks
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !echoes(t, tty) {
		t.Errorf("%v, and the terminal shows what is typed: %t", err, echoes(t, tty))
	}
}
