package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/starling-host/starling/eventlog/pglog"
)

// rights is who somebody is to a server, and what that role lacks for each use.
type rights struct {
	role               string
	serve, prune, read []string
}

// rightsOn asks a server, where all tables are, about the role that the log was opened as.
func rightsOn(ctx context.Context, log database) (r rights, err error) {
	needs := pglog.NeedsOf(hostTables()...)
	for _, use := range []struct {
		needs   []pglog.Need
		lacking *[]string
	}{{needs.Writer, &r.serve}, {needs.Retention, &r.prune}, {needs.Reader, &r.read}} {
		if r.role, *use.lacking, err = log.(*pglog.Log).Lacking(ctx, use.needs...); err != nil {
			return rights{}, err
		}
	}
	return r, nil
}

// checkRights says what the role may do. One that may not serve can be meant to be so.
func checkRights(ctx context.Context, log database) finding {
	const check = "rights"
	r, err := rightsOn(ctx, log)
	if err != nil {
		return finding{check, stateBad, plainError(err), ""}
	}
	var may []string
	for _, use := range []struct {
		name    string
		lacking []string
	}{{"serve", r.serve}, {"prune", r.prune}, {"read", r.read}} {
		if len(use.lacking) == 0 {
			may = append(may, use.name)
		}
	}
	found := r.role + " may " + strings.Join(may, ", ")
	if len(r.serve) == 0 {
		return finding{check, stateOK, found, ""}
	}
	state := stateLimited
	if len(may) == 0 {
		state, found = stateBad, r.role+" may not even read all tables"
	}
	return finding{check, state, found + "; to serve it lacks " + someOf(r.serve), "for a host, as the owner of the tables: " + grantCommand(r.role, "host")}
}

// checkRights refuses to serve as a role with which runs would be taken and could not be
// made. Who owns the tables may do everything.
func (h *host) checkRights(ctx context.Context) error {
	if !onServer(h.file.Database) {
		return nil
	}
	r, err := rightsOn(ctx, h.log)
	if err != nil {
		return err
	}
	if len(r.serve) > 0 {
		return &failure{code: exitUsage, message: fmt.Sprintf("the role %s may not serve: it lacks %s", r.role, someOf(r.serve)),
			hint: "as the owner of the tables: " + grantCommand(r.role, "host")}
	}
	if h.file.Retention.OlderThan > 0 && len(r.prune) > 0 {
		return &failure{code: exitUsage, message: fmt.Sprintf("retention: the role %s may not remove runs: it lacks %s", r.role, someOf(r.prune)),
			hint: "as the owner of the tables: " + grantCommand(r.role, "retention")}
	}
	return nil
}

// grantCommand gives a role what it needs for a use.
func grantCommand(role, use string) string {
	return fmt.Sprintf("starling-host migrate postgres://OWNER@... --%s-role %s", use, shellWord(role))
}

// someOf names the first of many.
func someOf(lacking []string) string {
	const few = 3
	if len(lacking) <= few {
		return strings.Join(lacking, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(lacking[:few], ", "), len(lacking)-few)
}
