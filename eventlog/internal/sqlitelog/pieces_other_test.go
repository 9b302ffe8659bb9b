//go:build !(linux && (amd64 || arm64))

package sqlitelog

import "errors"

func writeInPieces(...string) error {
	return errors.New("needs a SQLite whose pwrite can be replaced")
}
