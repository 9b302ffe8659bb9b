package memlog_test

import (
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/memlog"
)

func TestSuite(t *testing.T) {
	logtest.Run(t, func(testing.TB) eventlog.EventLog { return memlog.New() })
}
