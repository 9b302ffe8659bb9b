package observe

import "github.com/starling-host/starling/eventlog/event"

// The metrics. Durations are in seconds, points in time in seconds since 1970.
const (
	metricRunsStarted     = "starling_runs_started_total"
	metricRunsInFlight    = "starling_runs_in_flight"
	metricRunTerminal     = "starling_run_terminal_total"
	metricRunDuration     = "starling_run_duration_seconds"
	metricProviderCalls   = "starling_provider_calls_total"
	metricProviderTime    = "starling_provider_call_duration_seconds"
	metricProviderTokens  = "starling_provider_tokens_total"
	metricToolCalls       = "starling_tool_calls_total"
	metricToolTime        = "starling_tool_call_duration_seconds"
	metricAppends         = "starling_eventlog_appends_total"
	metricAppendTime      = "starling_eventlog_append_duration_seconds"
	metricBudgetsExceeded = "starling_budget_exceeded_total"
	metricHTTPRequests    = "starling_http_requests_total"
	metricHTTPTime        = "starling_http_request_duration_seconds"
	metricQueueJobs       = "starling_queue_jobs"
	metricQueueOldest     = "starling_queue_oldest_seconds"
	metricHosts           = "starling_hosts"
	metricBuild           = "starling_build_info"
	metricCertificate     = "starling_certificate_expiry_timestamp_seconds"
	metricRetention       = "starling_retention_last_success_timestamp_seconds"
	metricDiskFree        = "starling_disk_free_bytes"
	metricDiskSize        = "starling_disk_size_bytes"
	metricDatabase        = "starling_database_bytes"
	metricModules         = "starling_modules"
	metricModuleBytes     = "starling_module_bytes"
	metricCompiled        = "starling_compiled_code_bytes"
)

// The labels.
const (
	labelStatus    = "status"
	labelErrorType = "error_type"
	labelModel     = "model"
	labelType      = "type"
	labelTool      = "tool"
	labelKind      = "kind"
	labelAxis      = "axis"
	labelRoute     = "route"
	labelCode      = "code"
	labelState     = "state"
	labelVersion   = "version"
	labelFolder    = "folder"
)

// The values of labels that are not the names of something.
const (
	statusOK        = "ok"
	statusError     = "error"
	statusCancelled = "cancelled"
	statusBudget    = "budget"

	typePrompt     = "prompt"
	typeCompletion = "completion"

	none  = "none"  // the error type of what did not fail
	other = "other" // what is in no set
)

// The types of errors: those of tools, those of runs, and the classes of package
// provider.
const (
	errorBudget   = "budget"
	errorMaxTurns = "max_turns"
	errorProvider = "provider"
	errorInternal = "internal"

	errorRateLimit = "rate_limit"
	errorAuth      = "auth"
	errorServer    = "server"
	errorNetwork   = "network"
)

var errorTypes = []string{
	event.ErrorTool, event.ErrorPanic, event.ErrorCancelled, event.ErrorTimeout, event.ErrorFuel, event.ErrorLimit, event.ErrorLost,
	errorBudget, errorMaxTurns, errorProvider, errorInternal,
	errorRateLimit, errorAuth, errorServer, errorNetwork,
}

// Scope is the name of the instrumentation scope of all spans.
const Scope = "starling"

// The spans: one run has turns, a turn has one stream of the provider and any
// number of tools.
const (
	spanRun      = "agent.run"
	spanTurn     = "agent.turn"
	spanProvider = "provider.stream"
	spanTool     = "step.tool"
)

// The attributes of spans. Those of OpenTelemetry are as in version 1.41 of its
// semantic conventions, where those for GenAI are not stable yet.
const (
	attrService  = "service.name" // of the source of all spans
	attrVersion  = "service.version"
	attrInstance = "service.instance.id"

	attrMethod = "http.request.method"
	attrRoute  = "http.route"
	attrStatus = "http.response.status_code"

	attrOperation    = "gen_ai.operation.name"
	attrProvider     = "gen_ai.provider.name"
	attrConversation = "gen_ai.conversation.id" // the run
	attrAgent        = "gen_ai.agent.name"
	attrModel        = "gen_ai.request.model"
	attrMaxTokens    = "gen_ai.request.max_tokens"
	attrStream       = "gen_ai.request.stream"
	attrFinish       = "gen_ai.response.finish_reasons"
	attrResponse     = "gen_ai.response.id"
	attrInput        = "gen_ai.usage.input_tokens"
	attrOutput       = "gen_ai.usage.output_tokens"
	attrCacheRead    = "gen_ai.usage.cache_read.input_tokens"
	attrCacheCreate  = "gen_ai.usage.cache_creation.input_tokens"
	attrToolName     = "gen_ai.tool.name"
	attrToolType     = "gen_ai.tool.type"
	attrToolCall     = "gen_ai.tool.call.id"
	attrError        = "error.type"

	attrRun        = "starling.run_id"
	attrTurn       = "starling.turn_id"
	attrTerminal   = "starling.terminal"
	attrCost       = "starling.cost_usd"
	attrAttempt    = "starling.attempt"
	attrFuel       = "starling.fuel"
	attrPeakMemory = "starling.peak_memory"
)

// The methods of HTTP that spans name, and the name of all others.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

const otherMethod = "_OTHER"

// The values of gen_ai.operation.name and gen_ai.tool.type.
const (
	operationAgent = "invoke_agent"
	operationChat  = "chat"
	operationTool  = "execute_tool"
	toolFunction   = "function"
)

// providerNames are the values of gen_ai.provider.name for providers whose id is
// another one.
var providerNames = map[string]string{"gemini": "gcp.gemini", "bedrock": "aws.bedrock"}
