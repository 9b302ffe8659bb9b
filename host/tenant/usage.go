package tenant

// Usage is what a tenant uses, and may use.
type Usage struct {
	Tenant      string     `json:"tenant"`
	Modules     int64      `json:"modules"` // that are stored now, its own and those that its runs name
	ModuleBytes int64      `json:"module_bytes"`
	Recorded    *Recorded  `json:"recorded,omitempty"` // where one tenant is asked about: its events are counted
	Limits      Limits     `json:"limits"`             // with the defaults; -1 is no bound
	Days        []DayUsage `json:"days"`               // from the newest on
}

// Recorded is what the runs of a tenant take that are kept.
type Recorded struct {
	Bytes int64 `json:"bytes"`
	Today int64 `json:"bytes_today"` // since midnight UTC
}

// DayUsage is what the runs have used that ended on a day.
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
	After  string // only those behind the tenant
	Limit  int    // at most so many tenants
	Days   int    // that end with today
}

// The defaults of a [UsageFilter], and the most that it may ask for.
const (
	DefaultUsageDays    = 31
	DefaultUsageTenants = 50
	MaxUsageTenants     = 200
)
