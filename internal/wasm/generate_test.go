package wasm_test

import (
	"testing"

	"github.com/starling-host/starling/internal/treetest"
)

func TestGenerated(t *testing.T) { treetest.Generated(t, "opcodes.go") }
