package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// problemBase is what the types of problems begin with. Their names are sections
// of the document there.
const problemBase = "https://github.com/starling-host/starling/blob/main/docs/problems.md#"

// Problem is an answer that is not what was asked for, as RFC 9457 has it. It is
// the only kind of error that is ever shown.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"` // what is wrong with this request
	Hint   string `json:"hint,omitempty"`   // what to do about it

	// Of a body: the member or JSON pointer, and the place. Excerpt is the line, and
	// a caret below the column.
	Field   string `json:"field,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Excerpt string `json:"excerpt,omitempty"`

	// Problems are what a schema has to say of an input.
	Problems []string `json:"problems,omitempty"`

	// Of a module that is refused: where, and what exceeds which bound.
	Function     *int   `json:"function,omitempty"`
	FunctionName string `json:"function_name,omitempty"`
	Offset       *int   `json:"offset,omitempty"`
	Limit        uint64 `json:"limit,omitempty"`
	Value        uint64 `json:"value,omitempty"`

	retryAfter time.Duration
	allow      string // the methods that there are
	challenge  bool   // ask for a key
}

// Error returns the title and what is wrong.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Title + ": " + p.Detail
}

// kind is a type of problem.
type kind struct {
	name   string
	status int
	title  string
}

// The kinds of problems. The names are a contract.
var (
	badRequest      = kind{"bad-request", http.StatusBadRequest, "The request cannot be read"}
	badJSON         = kind{"invalid-json", http.StatusBadRequest, "The body is not JSON"}
	unknownField    = kind{"unknown-field", http.StatusBadRequest, "The body has a field that nobody asks for"}
	badField        = kind{"invalid-field", http.StatusBadRequest, "A field has a value that it cannot have"}
	badQuery        = kind{"invalid-parameter", http.StatusBadRequest, "A parameter has a value that it cannot have"}
	unauthorized    = kind{"unauthorized", http.StatusUnauthorized, "A valid key is needed"}
	policyHeld      = kind{"policy-held", http.StatusForbidden, "The operator has set the policy, and holds it"}
	notFound        = kind{"not-found", http.StatusNotFound, "There is no such thing"}
	wrongMethod     = kind{"method-not-allowed", http.StatusMethodNotAllowed, "This cannot be done with it"}
	notSleeping     = kind{"not-sleeping", http.StatusConflict, "The run waits for nothing that could be brought forward"}
	alreadyEnded    = kind{"already-ended", http.StatusConflict, "The run has ended"}
	unreadable      = kind{"unreadable", http.StatusConflict, "The run cannot be read here"}
	removed         = kind{"removed", http.StatusGone, "The run was removed"}
	nameTaken       = kind{"name-taken", http.StatusConflict, "The name is taken"}
	otherVersion    = kind{"changed", http.StatusPreconditionFailed, "It is another one than the one that was to be changed"}
	tooLarge        = kind{"too-large", http.StatusRequestEntityTooLarge, "The body is too large"}
	wrongType       = kind{"unsupported-media-type", http.StatusUnsupportedMediaType, "The body is of a type that is not taken"}
	badInput        = kind{"invalid-input", http.StatusUnprocessableEntity, "The input does not match the tool's schema"}
	otherRequest    = kind{"idempotency-key-reused", http.StatusUnprocessableEntity, "The idempotency key belongs to another request"}
	moduleRefused   = kind{"module-refused", http.StatusUnprocessableEntity, "The module is not accepted"}
	moduleLimit     = kind{"module-limit", http.StatusUnprocessableEntity, "The tenant has as many modules as it may"}
	notReplayable   = kind{"not-replayable", http.StatusUnprocessableEntity, "The run cannot be executed again here"}
	badPolicy       = kind{"invalid-policy", http.StatusUnprocessableEntity, "The body is not a policy"}
	unconditional   = kind{"precondition-required", http.StatusPreconditionRequired, "The request does not say what it is to change"}
	rateLimited     = kind{"rate-limited", http.StatusTooManyRequests, "There are too many requests"}
	tenantFull      = kind{"too-many-waiting", http.StatusTooManyRequests, "The tenant has as many runs waiting as it may"}
	recordedLimit   = kind{"recorded-limit", http.StatusTooManyRequests, "The tenant has recorded as much as it may"}
	queueFull       = kind{"queue-full", http.StatusServiceUnavailable, "The host has as many runs waiting as it can"}
	busy            = kind{"busy", http.StatusServiceUnavailable, "The host is busy with requests of this kind"}
	unavailable     = kind{"unavailable", http.StatusServiceUnavailable, "The host cannot do this now"}
	noSpace         = kind{"no-space", http.StatusInsufficientStorage, "The host is short of room"}
	internalFailure = kind{"internal", http.StatusInternalServerError, "The host has failed"}
)

// problemKinds are all of them.
var problemKinds = []kind{
	badRequest, badJSON, unknownField, badField, badQuery, unauthorized, policyHeld, notFound, wrongMethod, notSleeping, alreadyEnded,
	unreadable, removed,
	nameTaken, otherVersion, tooLarge, wrongType, badInput, otherRequest, moduleRefused, moduleLimit, notReplayable,
	badPolicy, unconditional,
	rateLimited, tenantFull, recordedLimit, queueFull, busy, unavailable, noSpace, internalFailure,
}

// ProblemTypes returns the types of all problems that there are.
func ProblemTypes() []string {
	var types []string
	for _, k := range problemKinds {
		types = append(types, problemBase+k.name)
	}
	return types
}

// because is a problem of the kind, with what is wrong in this case.
func (k kind) because(format string, args ...any) *Problem {
	return &Problem{Type: problemBase + k.name, Title: k.title, Status: k.status, Detail: fmt.Sprintf(format, args...)}
}

// plain is a problem of the kind that says the same of every request.
func (k kind) plain() *Problem {
	return &Problem{Type: problemBase + k.name, Title: k.title, Status: k.status}
}

func (p *Problem) in(field string) *Problem           { p.Field = field; return p }
func (p *Problem) hint(text string) *Problem          { p.Hint = text; return p }
func (p *Problem) retry(after time.Duration) *Problem { p.retryAfter = after; return p }

// write answers with the problem.
func (p *Problem) write(w http.ResponseWriter) {
	h := w.Header()
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.retryAfter+time.Second-1)/time.Second)))
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.challenge {
		h.Set("WWW-Authenticate", `Bearer realm="starling-host"`)
	}
	writeDocument(w, p.Status, "application/problem+json", p)
}

// writeDocument answers with a JSON document. It has no characters that an HTML
// parser would act on, whatever the client takes it for.
func writeDocument(w http.ResponseWriter, status int, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "", http.StatusInternalServerError) // none of our documents
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // who has hung up is not told
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	writeDocument(w, status, "application/json", v)
}
