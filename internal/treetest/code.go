package treetest

import (
	"os"
	"path/filepath"
)

// CodeFolder returns the folder in which the user keeps compiled code, or "". Machine code is named by
// the digest of its module and by its compiler, so a test that is not about compiling uses it.
func CodeFolder() string {
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(base, "starling-host", "compiled")
}
