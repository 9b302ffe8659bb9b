package worker

import "syscall"

// attributes are the system's attributes of a new worker: its own process
// group, so that Ctrl-C in a console does not reach it. When the host has
// ended, the worker sees the end of its input.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

// setNice does nothing: Windows has no nice values.
func setNice(int, int) {}
