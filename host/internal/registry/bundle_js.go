package registry

import "errors"

// bundled is the script of a tool, which a program in a browser does not build.
type bundled struct {
	Script  []byte
	Imports []string
}

func bundle(string, string) (*bundled, error) {
	return nil, errors.New("a program in a browser builds no tools")
}
