package sqlitelog

import "os"

// noFollow is zero: on Windows, creating links requires a privilege.
const noFollow = 0

// inUse is left to the system here, which moves no file that is open.
func inUse(*os.File) (bool, error) { return false, nil }
