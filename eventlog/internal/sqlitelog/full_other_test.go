//go:build !unix

package sqlitelog

import "errors"

func writeUntilFull(...string) error { return errors.New("needs RLIMIT_FSIZE") }
