// The tools that spec/tck requires of an SDK.
#include "sdk/starling.h"

static st_json *echo(const st_json *in) {
	st_json *out = st_set(st_object(), "input", in);
	const char *names[] = {"run_id", "call_id", "attempt", "variables"};
	for (int i = 0; i < 4; i++) st_set(out, names[i], st_get(st_context(), names[i]));
	return out;
}

static st_json *fail(const st_json *in) {
	const char *kind = st_text(in, "kind"), *message = st_text(in, "message");
	return strcmp(kind, "snooze") ? st_failure(kind, message, 0) : st_snooze(1500, message);
}

static st_json *effects(const st_json *in) {
	(void)in;
	st_json *out = st_set(st_object(), "now_ms", st_int((int64_t)(st_now() / 1000000)));
	return st_set(out, "random", st_format("%llu", (unsigned long long)st_random()));
}

static st_json *fetch(const st_json *in) {
	st_request *request = st_request_to(st_get(in, "method") ? st_text(in, "method") : "GET", st_text(in, "url"));
	request->body = st_text(in, "body");
	request->body_length = strlen(request->body);
	if (st_get(in, "effect")) st_header(request, "Starling-Effect", st_text(in, "effect"));
	st_response response = st_send(request);
	if (response.failure) return st_set(st_object(), "failed", st_string(response.reason));
	st_json *out = st_set(st_object(), "status", st_int(response.status));
	return st_set(out, "body", st_string_n(response.body, response.body_length));
}

STARLING_TOOLS({"echo", "Returns its input and its context.", echo}, {"fail", "Fails as it is told.", fail},
	{"effects", "Reads the clock and draws a random number.", effects}, {"fetch", "Makes one request.", fetch})
