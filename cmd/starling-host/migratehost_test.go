package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/serve"
)

// TestMigrateHostNamesTablesOfSets: rights are granted on the tables that a set names, so
// each that a step creates, and none drops or renames, has to be among them.
func TestMigrateHostNamesTablesOfSets(t *testing.T) {
	changes := regexp.MustCompile(`(?i)\bCREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?"?(\w+)|\bDROP\s+TABLE\s+(\w+)|\bALTER\s+TABLE\s+(\w+)\s+RENAME\s+TO\s+(\w+)`)
	for _, set := range serve.Tables() {
		var here []string
		for _, step := range set.Steps {
			for _, found := range changes.FindAllStringSubmatch(step, -1) {
				gone := found[2] + found[3]
				here = slices.DeleteFunc(here, func(table string) bool { return table == gone })
				if now := found[1] + found[4]; now != "" && !slices.Contains(here, now) {
					here = append(here, now)
				}
			}
		}
		named := slices.Sorted(slices.Values(set.Tables))
		slices.Sort(here)
		if diff := cmp.Diff(here, named); diff != "" {
			t.Errorf("%s creates other tables than it names (-created +named):\n%s", set.Name, diff)
		}
	}
}

// TestMigrateHostGrowthIsDocumented: docs/serving.md has a row for each table of both engines and
// for each file beside a database, and no row of one that is not there. Each row says
// what bounds it.
func TestMigrateHostGrowthIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/serving.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## What grows\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 7 || !strings.Contains(cells[1], "`") {
			continue
		}
		if strings.TrimSpace(cells[2]) == "" || strings.TrimSpace(cells[3]) == "" {
			t.Errorf("the row of%sdoes not say who makes it grow and what bounds it", cells[1])
		}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			documented = append(documented, name[1])
		}
		for _, metric := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[5], -1) {
			if names, err := os.ReadFile("../../runtime/observe/http.go"); err != nil || !strings.Contains(string(names), `"`+metric[1]+`"`) {
				t.Errorf("the row of%snames the metric %s, which there is not: %v", cells[1], metric[1], err)
			}
		}
	}
	there := []string{"starling-host/build", "starling-host/compiled"}
	file := filepath.Join(t.TempDir(), "DB")
	for where, query := range map[string]string{
		file:               "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
		pgtest.Database(t): "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace",
	} {
		var log database
		if where == file {
			log, err = store.OpenFile(t.Context(), where, store.FileOptions{})
		} else {
			log, err = store.OpenServer(t.Context(), where, store.ServerOptions{AutoMigrate: true})
		}
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		for _, set := range serve.Tables() {
			if err := log.CreateTables(t.Context(), set); err != nil {
				t.Fatal(err)
			}
		}
		err := log.View(t.Context(), func(q eventlog.Querier) error {
			return q.Query(query, nil, func(r eventlog.Row) error {
				var name string
				err := r.Scan(&name)
				there = append(there, name)
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := store.SetAside(file); err != nil {
		t.Error(err)
	}
	beside, err := filepath.Glob(file + "?*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range beside {
		there = append(there, filepath.Base(path))
	}
	slices.Sort(there)
	slices.Sort(documented)
	if diff := cmp.Diff(slices.Compact(there), documented); diff != "" {
		t.Errorf("what there is and what docs/serving.md says that grows (-there +documented):\n%s", diff)
	}
}
