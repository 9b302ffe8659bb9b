package serve

import (
	"context"
	"errors"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// Jobs is the queue of a database beside its hosts: it starts no job, and knows which tenants are suspended.
type Jobs struct {
	*queue.Queue
	log       eventlog.Database
	suspended map[string]bool // tenants
}

// OpenJobs opens the queue that a host has made in the database of a log. The error is [queue.ErrNoTables] if there is none.
func OpenJobs(ctx context.Context, log eventlog.Database) (*Jobs, error) {
	j := &Jobs{log: log}
	var err error
	j.Queue, err = queue.Open(ctx, log, queue.Config{Existing: true, Limits: func(tenant string) queue.Limits {
		return queue.Limits{Paused: j.suspended[tenant]} // only hosts know the other limits
	}})
	if err == nil {
		err = j.Refresh(ctx)
	}
	return j, err
}

// JobsIn is [OpenJobs] for what is shown beside runs. It returns nil if there is no queue, or this program cannot read it.
func JobsIn(ctx context.Context, log eventlog.Database) (*Jobs, error) {
	j, err := OpenJobs(ctx, log)
	if errors.Is(err, queue.ErrNoTables) || errors.Is(err, eventlog.ErrReadOnly) || store.Denied(err) || errors.Is(err, eventlog.ErrSchemaTooNew) {
		return nil, nil
	}
	return j, err
}

// Refresh reads again which tenants are suspended.
func (j *Jobs) Refresh(ctx context.Context) error {
	store, err := tenant.Open(ctx, j.log, tenant.Options{Existing: true})
	if errors.Is(err, tenant.ErrNoTables) {
		return nil
	}
	if err != nil {
		return err
	}
	list, err := store.Tenants(ctx)
	j.suspended = make(map[string]bool, len(list))
	for _, one := range list {
		j.suspended[one.ID] = one.Suspended
	}
	return err
}

// JobDocument is the job of a run that has not ended, as JSON.
type JobDocument struct {
	queue.Progress
	Host string `json:"host,omitempty"`
}

// maxJobShown is how many characters are shown of a job, which has the error of its last attempt.
const maxJobShown = 200

// String describes the job in one line.
func (d *JobDocument) String() string {
	return display.Shorten(display.Printable(queue.Status{Progress: d.Progress, Host: d.Host}.Sentence()), maxJobShown)
}

// JobsOf returns the jobs of the runs that have not ended.
func JobsOf(ctx context.Context, log eventlog.Database, runIDs ...string) (map[string]*JobDocument, error) {
	if len(runIDs) == 0 {
		return nil, nil
	}
	j, err := JobsIn(ctx, log)
	if j == nil || err != nil {
		return nil, err
	}
	found, err := j.Lookup(ctx, runIDs...)
	docs := make(map[string]*JobDocument, len(found))
	for id, doc := range found {
		docs[id] = &JobDocument{doc.Progress, doc.Host}
	}
	return docs, err
}
