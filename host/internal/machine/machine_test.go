package machine

import (
	"testing"

	"github.com/starling-host/starling/internal/treetest"
)

func TestGenerated(t *testing.T) { treetest.Generated(t, "dispatch.go") }
