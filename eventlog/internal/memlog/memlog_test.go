package memlog_test

import (
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/memlog"
	"github.com/starling-host/starling/eventlog/logtest"
)

func TestSuite(t *testing.T) {
	logtest.Run(t, func(testing.TB) eventlog.EventLog { return memlog.New() })
}
