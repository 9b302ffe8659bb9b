package main

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"
)

// TestEveryJobIsWorked measures for a moment, and looks at the jobs and not at the rate.
func TestEveryJobIsWorked(t *testing.T) {
	for name, s := range map[string]settings{
		"a backlog": {workers: 8, backlog: 1500},
		"callers":   {workers: 8, callers: 8, duration: 10 * time.Millisecond},
	} {
		s.file = filepath.Join(t.TempDir(), "jobs.db")
		if rate, err := s.measure(t.Context()); err != nil || rate <= 0 {
			t.Fatalf("%s: %v a second, %v", name, rate, err)
		}
		db, err := sql.Open("sqlite", s.file)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var jobs, completed int
		err = db.QueryRow("SELECT count(*), sum(state = 'completed') FROM river_job").Scan(&jobs, &completed)
		if err != nil || completed != jobs || jobs < s.backlog || jobs == 0 {
			t.Errorf("%s: %d of %d jobs are completed, %v", name, completed, jobs, err)
		}
	}
}
