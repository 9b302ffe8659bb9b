package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve"
)

// rights are the role that a server knows a user by, and what it lacks for each use.
type rights struct {
	role               string
	serve, prune, read []string
}

// rightsOn asks a server, where all tables are, about the role that the log was opened as.
func rightsOn(ctx context.Context, log database) (r rights, err error) {
	needs := store.NeedsOf(serve.Tables()...)
	for _, use := range []struct {
		needs   []store.Need
		lacking *[]string
	}{{needs.Writer, &r.serve}, {needs.Retention, &r.prune}, {needs.Reader, &r.read}} {
		if r.role, *use.lacking, err = log.(*store.Server).Lacking(ctx, use.needs...); err != nil {
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
		return finding{check, stateBad, starling.PlainError(err), ""}
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
