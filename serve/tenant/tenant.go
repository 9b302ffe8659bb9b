package tenant

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/starling-host/starling/internal/hint"
	"github.com/starling-host/starling/internal/lazy"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrUnauthorized is Authenticate's only error for a key that it refuses.
	ErrUnauthorized = errors.New("tenant: the API key is not valid")
	// ErrNotFound means that the store has nothing of that name for that tenant. It is
	// a [*NotFoundError].
	ErrNotFound = errors.New("tenant: not found")
	// ErrExists means that it exists already.
	ErrExists = errors.New("tenant: exists already")
	// ErrChanged means that a tenant's modules have changed since the caller read them.
	ErrChanged = errors.New("tenant: the modules have changed")
	// ErrErased means that the tenant's data key was destroyed.
	ErrErased = errors.New("tenant: the tenant has been erased")
	// ErrNoMasterKey means that the store was opened without a master key.
	ErrNoMasterKey = hint.New("tenant: there is no master key", "name its file with --key-file, or make one with: starling-host tenant keygen FILE")
	// ErrWrongMasterKey means that the data key was wrapped with another master key
	// than the store's.
	ErrWrongMasterKey = hint.New("tenant: the master key does not match", "give the key that wraps the data keys of the tenants: --key-file, or key_file in host.yaml")
	// ErrNoTables means that the database has no tables of a host, and so no tenants.
	ErrNoTables = hint.New("tenant: the database has no tenants: no host has used it", "make its first tenant with: starling-host tenant create --help")
	// ErrInvalid means that the value to store is not allowed.
	ErrInvalid = errors.New("tenant: invalid")
)

// Errors are the errors of this package that are a caller's mistake: what it names, or its key, is wrong.
var Errors = []error{ErrNoMasterKey, ErrWrongMasterKey, ErrNoTables, ErrErased, ErrExists, ErrNotFound, ErrInvalid}

// NotFoundError names the missing item. It is [ErrNotFound].
type NotFoundError struct {
	What string // "tenant", "API key", "secret", "module", "policy of" or "data key of"
	Name string // its name; for a policy and a data key, the tenant
}

// Error names the missing thing, cut to fit into a line.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("%v: %s %.64q", ErrNotFound, e.What, e.Name)
}

// Advice implements [hint.Hinted].
func (e *NotFoundError) Advice() string {
	lists := map[string]string{"secret": "secret list TENANT", "API key": "tenant list -o json", "module": "tenant modules TENANT"}
	return "list what there is with: starling-host " + cmp.Or(lists[e.What], "tenant list")
}

// Is reports whether target is [ErrNotFound].
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// Tenant is a customer of the host.
type Tenant struct {
	ID        string    `json:"id"`         // lower-case letters, digits and hyphens, at most 32; never used again
	Name      string    `json:"name"`       // for people; at most 200 bytes
	Created   time.Time `json:"created_at"` // set by Create
	Suspended bool      `json:"-"`          // its keys are not taken
	Erased    time.Time `json:"-"`          // when its data was erased; zero if it was not
	Weight    int       `json:"weight"`     // its share of the host beside others; zero is 1, at most MaxWeight
	Limits    Limits    `json:"limits"`
	Revision  int64     `json:"-"` // of its [Holdings], raised by each change of them
}

// MaxWeight is the largest share of a tenant.
const MaxWeight = 1000

// Limits bound what one tenant may use: counts are int, sizes in bytes int64. Zero is the host's
// default, see [DefaultLimits]; less than zero means no bound. The command line has a flag for each
// limit, in this order, named as in YAML.
type Limits struct {
	Running           int   `json:"running" yaml:"running" usage:"calls and runs at work at once"`
	Waiting           int   `json:"waiting" yaml:"waiting" usage:"runs in the queue"`
	Compiling         int   `json:"compiling" yaml:"compiling" usage:"modules waiting for the compiler or in it"`
	Connections       int   `json:"connections" yaml:"connections" usage:"connections of its tools at once"`
	RequestsPerSecond int   `json:"requests_per_second" yaml:"requests_per_second" usage:"requests to the API"` // with as many at once
	RecordedPerDay    int64 `json:"recorded_bytes_per_day" yaml:"recorded_per_day" usage:"bytes of events since midnight UTC"`
	Recorded          int64 `json:"recorded_bytes" yaml:"recorded" usage:"bytes of events in all its runs"`
	Modules           int64 `json:"module_bytes" yaml:"module_bytes" usage:"bytes of its modules, and of removed ones that its runs name"`
	UploadsPerHour    int   `json:"uploads_per_hour" yaml:"uploads_per_hour" usage:"modules that it uploads"` // with as many at once
}

// DefaultLimits returns the default limits of a tenant.
func DefaultLimits() Limits {
	return Limits{Running: 4, Waiting: 1000, Compiling: 4, Connections: 8, RequestsPerSecond: 50,
		RecordedPerDay: 1 << 30, Recorded: 10 << 30, Modules: 512 << 20, UploadsPerHour: 200}
}

// Or returns l with zero fields taken from defaults.
func (l Limits) Or(defaults Limits) Limits {
	for i := range reflect.TypeFor[Limits]().NumField() {
		if limit := reflect.ValueOf(&l).Elem().Field(i); limit.IsZero() {
			limit.Set(reflect.ValueOf(defaults).Field(i))
		}
	}
	return l
}

var idPattern = lazy.Regexp(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// ValidID returns an error that describes why a tenant's id is invalid, or nil.
func ValidID(id string) error {
	if !idPattern().MatchString(id) {
		return fmt.Errorf("%w: tenant id %.64q: an id has 1 to 32 of a-z, 0-9 and hyphens, with no hyphen at either end", ErrInvalid, id)
	}
	return nil
}

func validWeight(w int) error {
	if w < 1 || w > MaxWeight {
		return fmt.Errorf("%w: a weight is 1 to %d, not %d", ErrInvalid, MaxWeight, w)
	}
	return nil
}

// Usage is a tenant's current usage, with its limits.
type Usage struct {
	Tenant      string     `json:"tenant"`
	Modules     int64      `json:"modules"` // currently stored, its own and those named by its runs
	ModuleBytes int64      `json:"module_bytes"`
	Recorded    *Recorded  `json:"recorded,omitempty"`  // where one tenant is asked about: its runs are added up
	InFlight    *InFlight  `json:"in_flight,omitempty"` // at the host that answers
	Limits      Limits     `json:"limits"`              // with the defaults; -1 means no bound
	Days        []DayUsage `json:"days"`                // from the newest on
}

// Recorded is the storage that a tenant's kept runs take.
type Recorded struct {
	Bytes int64 `json:"bytes"`
	Today int64 `json:"bytes_today"` // since midnight UTC
	Held  int64 `json:"bytes_held"`  // of the requests for runs that have not ended
}

// InFlight is the resources that a tenant's requests and runs hold at one host now.
type InFlight struct {
	Slots   int   `json:"slots"`   // CPU slots, in which they compute
	Waiting int   `json:"waiting"` // how many wait for one
	Bytes   int64 `json:"bytes"`   // of memory
}

// DayUsage is the usage of the runs that ended on a day.
type DayUsage struct {
	Day           string `json:"day"` // in UTC
	Runs          int64  `json:"runs"`
	Fuel          int64  `json:"fuel"`
	Effects       int64  `json:"effects"`
	EgressBytes   int64  `json:"egress_bytes"`
	RecordedBytes int64  `json:"recorded_bytes"`
}

// UsageList is the usage of tenants, by their ids.
type UsageList struct {
	Items []Usage `json:"items"`
	Next  string  `json:"next,omitempty"` // the value of "after" for the next page
}

// UsageFilter says whose usage is asked for.
type UsageFilter struct {
	Tenant string // only that of the tenant; empty is all
	After  string // only tenants after this one
	Limit  int    // maximum number of tenants
	Days   int    // that end with today
}

// The defaults of a [UsageFilter], and the most that it may ask for.
const (
	DefaultUsageDays    = 31
	DefaultUsageTenants = 50
	MaxUsageTenants     = 200
)
