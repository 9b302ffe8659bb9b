package registry

import "errors"

func bundle(string, string) (*bundled, error) {
	return nil, errors.New("a program in a browser builds no tools")
}
