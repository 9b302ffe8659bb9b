package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/egress"
)

// Bounds on a request to a witness.
const (
	witnessTimeout = 10 * time.Second
	witnessBytes   = 2 * seal.MaxCheckpointBytes
)

// addCheckpoint is the path of a witness's only call (c2sp.org/tlog-witness).
const addCheckpoint = "/add-checkpoint"

// conflictType is the content type of a witness's number of leaves.
const conflictType = "text/x.tlog.size"

// ServeWitness answers requests to a witness until ctx ends. It closes the listener.
func ServeWitness(ctx context.Context, l net.Listener, w *seal.Witness, logger *slog.Logger) error {
	mux := http.NewServeMux()
	refused := refusals{logger: logger}
	mux.HandleFunc("POST "+addCheckpoint, func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, witnessBytes))
		if err != nil {
			http.Error(rw, "the request is too large", http.StatusRequestEntityTooLarge)
			return
		}
		line, err := w.Add(body, time.Now())
		conflict := (*seal.Conflict)(nil)
		status := http.StatusInternalServerError
		switch {
		case err == nil:
			logger.Info("cosigned", "checkpoint", firstLines(body))
			rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = rw.Write(line)
			return
		case errors.As(err, &conflict):
			rw.Header().Set("Content-Type", conflictType)
			rw.WriteHeader(http.StatusConflict)
			fmt.Fprintf(rw, "%d\n", conflict.Leaves)
			return
		case errors.Is(err, seal.ErrMalformed):
			status = http.StatusBadRequest
		case errors.Is(err, seal.ErrUnknownLog):
			status = http.StatusNotFound
		case errors.Is(err, seal.ErrUntrusted):
			status = http.StatusForbidden
		case errors.Is(err, seal.ErrInconsistent):
			status = http.StatusUnprocessableEntity
		}
		why := display.Clip(err.Error(), 200)
		refused.log(status, why)
		http.Error(rw, strings.TrimPrefix(why, "seal: "), status)
	})
	server := &http.Server{Handler: mux, ReadTimeout: witnessTimeout, WriteTimeout: witnessTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.Background(), witnessTimeout)
		defer cancel()
		_ = server.Shutdown(end)
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// refusals logs one refused request a second, with the number of unlogged ones before it.
type refusals struct {
	logger *slog.Logger

	mu      sync.Mutex // guards the fields below
	last    time.Time
	skipped int
}

func (r *refusals) log(status int, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.last) >= time.Second {
		r.logger.Warn("not cosigned", "status", status, "error", why, "skipped", r.skipped)
		r.last, r.skipped = now, 0
		return
	}
	r.skipped++
}

// firstLines returns the origin and the number of leaves of the checkpoint in a request.
func firstLines(body []byte) string {
	_, checkpoint, _ := bytes.Cut(body, []byte("\n\n"))
	lines := bytes.SplitN(checkpoint, []byte("\n"), 3)
	if len(lines) < 3 {
		return ""
	}
	return string(lines[0]) + " " + string(lines[1])
}

// Cosign asks a witness, at its URL, to cosign the newest checkpoint of a database, and
// stores the cosignature. It returns the checkpoint with it.
func Cosign(ctx context.Context, db eventlog.Transactor, witness string) (signed []byte, err error) {
	c, signed, err := seal.Newest(ctx, db)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: egress.Fetch(witness), Timeout: witnessTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r := seal.Request{Signed: signed}
	for range 3 { // the answer shows the state of the witness
		if r.Proof, err = seal.Consistency(ctx, db, c, r.Old); err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(witness, "/")+addCheckpoint, bytes.NewReader(r.Text()))
		if err != nil {
			return nil, fmt.Errorf("witness %s: %w", witness, err)
		}
		response, err := client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("witness: %w", err)
		}
		body, err := io.ReadAll(io.LimitReader(response.Body, witnessBytes))
		response.Body.Close()
		switch {
		case err != nil:
			return nil, fmt.Errorf("witness %s: %w", witness, err)
		case response.StatusCode == http.StatusOK:
			return seal.KeepCosignatures(ctx, db, c, body)
		case response.StatusCode == http.StatusConflict && response.Header.Get("Content-Type") == conflictType:
			old, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
			if err != nil || old < 0 || old == r.Old {
				return nil, fmt.Errorf("witness %s: it has seen another checkpoint of %d runs of this log: the log was rewritten, or there are two", witness, r.Old)
			}
			if old > c.Leaves {
				return nil, fmt.Errorf("witness %s: it has seen %d runs of this log, which has %d: the database was reset to an older copy", witness, old, c.Leaves)
			}
			r.Old = old
		default:
			return nil, fmt.Errorf("witness %s: status %d: %s", witness, response.StatusCode, strings.TrimSpace(string(body[:min(len(body), 300)])))
		}
	}
	return nil, fmt.Errorf("witness %s: its answer lacks the size of its log", witness)
}
