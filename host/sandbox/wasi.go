package sandbox

// errno is a result of a WASI function (preview 1, type errno).
type errno uint16

const (
	success errno = 0
	eBadf   errno = 8
	eFault  errno = 21
	eInval  errno = 28
	eNoent  errno = 44
	eNosys  errno = 52
	eNotsoc errno = 57
	eNotsup errno = 58
	eSpipe  errno = 70
)

// wasiFuncs are the 46 functions of WASI preview 1, as functions of the call.
// There are only a clock that moves when it is read, randomness expanded from
// one recorded seed, and three standard streams. The table of spec/abi.md,
// section 8, is in the same order.
var wasiFuncs = []hostFunc{
	wasi("args_get", (*session).argsGet),
	wasi("args_sizes_get", (*session).argsSizesGet),
	wasi("clock_res_get", (*session).clockResGet),
	wasi("clock_time_get", (*session).clockTimeGet),
	wasi("environ_get", (*session).environGet),
	wasi("environ_sizes_get", (*session).environSizesGet),
	wasi("fd_advise", onStream(eNotsup)),
	wasi("fd_allocate", onStream(eNotsup)),
	wasi("fd_close", onStream(success)),
	wasi("fd_datasync", onStream(eNotsup)),
	wasi("fd_fdstat_get", (*session).fdFdstatGet),
	wasi("fd_fdstat_set_flags", onStream(success)),
	wasi("fd_fdstat_set_rights", onStream(eNotsup)),
	wasi("fd_filestat_get", (*session).fdFilestatGet),
	wasi("fd_filestat_set_size", onStream(eNotsup)),
	wasi("fd_filestat_set_times", onStream(eNotsup)),
	wasi("fd_pread", onStream(eSpipe)),
	wasi("fd_prestat_get", always(eBadf)), // any other answer ends Go's and wasi-libc's start-up
	wasi("fd_prestat_dir_name", always(eBadf)),
	wasi("fd_pwrite", onStream(eSpipe)),
	wasi("fd_read", (*session).fdRead),
	wasi("fd_readdir", onStream(eNotsup)),
	wasi("fd_renumber", onStream(eNotsup)),
	wasi("fd_seek", onStream(eSpipe)),
	wasi("fd_sync", onStream(eNotsup)),
	wasi("fd_tell", onStream(eSpipe)),
	wasi("fd_write", (*session).fdWrite),
	wasi("path_create_directory", always(eNoent)),
	wasi("path_filestat_get", always(eNoent)),
	wasi("path_filestat_set_times", always(eNoent)),
	wasi("path_link", always(eNoent)),
	wasi("path_open", always(eNoent)),
	wasi("path_readlink", always(eNoent)),
	wasi("path_remove_directory", always(eNoent)),
	wasi("path_rename", always(eNoent)),
	wasi("path_symlink", always(eNoent)),
	wasi("path_unlink_file", always(eNoent)),
	wasi("poll_oneoff", (*session).pollOneoff),
	wasi("proc_exit", func(_ *session, a args) errno { panic(&exit{a.u32(0)}) }),
	wasi("proc_raise", always(eNosys)),
	wasi("random_get", (*session).randomGet),
	wasi("sched_yield", always(success)),
	wasi("sock_accept", onStream(eNotsoc)),
	wasi("sock_recv", onStream(eNotsoc)),
	wasi("sock_send", onStream(eNotsoc)),
	wasi("sock_shutdown", onStream(eNotsoc)),
}

// wasiFunc is the body of a WASI function.
type wasiFunc func(*session, args) errno

func wasi(name string, f wasiFunc) hostFunc {
	return hostFunc{name, func(s *session, a args) uint64 { return uint64(f(s, a)) }}
}

// always returns the same errno for all arguments.
func always(e errno) wasiFunc {
	return func(*session, args) errno { return e }
}

// onStream returns e for a standard stream, and EBADF for others.
func onStream(e errno) wasiFunc {
	return func(_ *session, a args) errno {
		if a.u32(0) > 2 {
			return eBadf
		}
		return e
	}
}

// store writes to guest memory, paid by the byte.
func (s *session) store(address uint32, data []byte) errno {
	if !s.instance.has(address, uint64(len(data))) {
		return eFault
	}
	s.charge(uint64(len(data)))
	s.copyIn(address, data)
	return success
}
