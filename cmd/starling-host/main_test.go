package main

import (
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/starling-host/starling/cmd/starling-host/scripttest"
	"github.com/starling-host/starling/host/guest"
)

func TestMain(m *testing.M) {
	guest.WorkerMain()
	beNeighbours()
	testscript.Main(cached{m}, map[string]func(){"starling-host": main, "measured-host": measuredHost})
}

// cached runs the tests with one folder for what is built and compiled.
type cached struct{ *testing.M }

// Run implements [testscript.TestingM].
func (m cached) Run() int {
	defer os.RemoveAll(scripttest.Cache())
	return m.M.Run()
}

// awaitTime is how long a test waits for what does not come when the program has failed.
const awaitTime = time.Minute
