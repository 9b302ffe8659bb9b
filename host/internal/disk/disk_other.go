//go:build !linux && !darwin && !freebsd

package disk

import "errors"

func statfs(string) (Room, error) { return Room{}, errors.ErrUnsupported }
