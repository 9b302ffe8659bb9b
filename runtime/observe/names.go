package observe

import "github.com/starling-host/starling/eventlog/event"

// The values of labels that are not the names of something.
const (
	statusOK        = "ok"
	statusError     = "error"
	statusCancelled = "cancelled"
	statusBudget    = "budget"

	none  = "none"  // the error type of a success
	other = "other" // a value in no set
)

// errorTypes are the types of errors: of tools, of runs, and the classes of failures of models.
var errorTypes = []string{
	event.ErrorTool, event.ErrorPanic, event.ErrorCancelled, event.ErrorTimeout, event.ErrorFuel, event.ErrorLimit, event.ErrorLost,
	event.ErrorBudget, event.ErrorMaxTurns, event.ErrorProvider, event.ErrorRefused, event.ErrorCut, event.ErrorInternal,
	"rate_limit", "auth", "server", "network", "invalid_stream", "no_hash",
}

// Scope is the name of the instrumentation scope of all spans.
const Scope = "starling"

// The attributes of spans. OpenTelemetry's names follow version 1.41 of its
// semantic conventions, where the GenAI names are not stable yet.
const (
	attrProvider = "gen_ai.provider.name"
	attrModel    = "gen_ai.request.model"
	attrInput    = "gen_ai.usage.input_tokens"
	attrOutput   = "gen_ai.usage.output_tokens"
	attrError    = "error.type"
)

// The methods of HTTP that spans name, and the name of all others.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

const otherMethod = "_OTHER"

// providerNames are the values of gen_ai.provider.name for providers whose id is
// another one.
var providerNames = map[string]string{"gemini": "gcp.gemini", "bedrock": "aws.bedrock"}
