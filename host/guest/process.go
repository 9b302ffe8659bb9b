//go:build !js

package guest

import (
	"context"

	"github.com/starling-host/starling/host/internal/disk"
	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/host/internal/scheduler"
	"github.com/starling-host/starling/host/internal/worker"
)

// Processes is the engine that executes modules in separate processes, which give up
// everything but their pipes. Compiler compiles modules in such a process, and
// ProcessReport lists its confinement.
type (
	Processes     = worker.Engine
	ProcessConfig = worker.Config
	ProcessReport = worker.Report
	Compiler      = worker.Compiler
)

// Errors of [Processes].
var (
	ErrProcessesClosed = worker.ErrClosed
	ErrNoProcess       = worker.ErrNoProcess
)

// NewProcesses starts an engine of processes. It must be closed.
func NewProcesses(ctx context.Context, c ProcessConfig) (*Processes, error) {
	return worker.New(ctx, c)
}

// WorkerMain turns this process into a worker if it was started as one, and then does not
// return. A program that uses [Processes] or [Compiler], or that builds tools in JavaScript
// which others wrote, calls it first.
func WorkerMain() {
	registry.Main()
	worker.Main()
}

// ProbeProcess starts a process and returns its confinement.
func ProbeProcess() (ProcessReport, error) { return worker.Probe() }

// Scheduler divides CPU slots between tenants, Claim is one tenant's share, and Pool
// divides bytes of memory.
type (
	Scheduler = scheduler.Scheduler
	Slot      = scheduler.Slot
	Claim     = scheduler.Claim
	Pool      = scheduler.Pool
)

// SmallBytes is the size up to which taking from a [Pool] never waits.
const SmallBytes = scheduler.SmallBytes

// ErrCrowd is returned when too many callers of a tenant hold slots or wait.
var ErrCrowd = scheduler.ErrCrowd

// NewPool returns a pool of n bytes.
func NewPool(size int64) *Pool { return scheduler.NewPool(size) }

// NewScheduler returns a scheduler of n slots. If each is not zero, a tenant holds at most
// that many at once.
func NewScheduler(n int, each ...int) *Scheduler { return scheduler.New(n, each...) }

// WithClaim returns a context whose calls are charged to a claim.
func WithClaim(ctx context.Context, c Claim) context.Context { return scheduler.For(ctx, c) }

// DiskRoom is the room on a disk.
type DiskRoom = disk.Room

// DiskRoomOf returns the room on the disk that has a path.
func DiskRoomOf(path string) (DiskRoom, error) { return disk.Of(path) }
