// Tests of starling.h, as a program for this machine.
#include "../starling.h"

static const st_field input[] = {{"what", "string", "What to do", 0, "{\"enum\":[\"json\",\"get\",\"fail\"]}"},
	{"text", "string", NULL, 1}, {"list", "number[]", NULL, 1}, {0}};

static st_json *everything(const st_json *in) {
	const char *what = st_text(in, "what");
	if (!strcmp(what, "json")) {
		const st_json *value = st_parse(st_text(in, "text"), st_get(in, "text")->length);
		if (!value) return st_discard("not JSON");
		return st_set(st_set(st_object(), "value", value), "value", value);
	}
	if (!strcmp(what, "get")) {
		st_request *request = st_get_request("http://h/é b#x");
		st_header(request, "A", "b");
		request->retries = 2;
		st_response r = st_send(request);
		if (r.failure) return r.failure;
		st_json *out = st_set(st_object(), "status", st_int(r.status));
		st_set(out, "type", st_string(st_response_header(&r, "content-TYPE")));
		return st_set(out, "body", st_string(r.body));
	}
	return st_snooze(1500, "later");
}

STARLING_TOOLS({"everything", "Does everything.", everything, input, NULL, 1, "h i.example.com", "{\"timeout_ms\":1000}"})

static int failures, requests;

static const char *answer(const char *request) {
	if (strcmp(request, "GET http://h/%C3%A9%20b HTTP/1.1\r\nA: b\r\n\r\n")) failures++, fprintf(stderr, "request: %s\n", request);
	static const char *const answers[] = {"-3 slow", "HTTP/1.1 503 Service Unavailable\r\n\r\n", "HTTP/1.1 200 OK\r\nX: y\r\nContent-Type: a\r\n\r\nbody"};
	return answers[requests++];
}

static const char *deny(const char *request) { return (void)request, "-1 no rule"; }
static const char *odd(const char *request) { return (void)request, "HTTP/1.1 200"; }

static void is(const char *got, const char *want) {
	if (!strcmp(got, want)) return;
	failures++;
	fprintf(stderr, "got  %s\nwant %s\n", got, want);
}

static void reads(const char *text, const char *want) {
	st_json *in = st_set(st_set(st_object(), "what", st_string("json")), "text", st_string(text));
	is(st_call("everything", st_write(in)), want ? st_print("{\"value\":%s}", want) : "{\"kind\":\"discard\",\"message\":\"not JSON\"}");
}

int main(void) {
	reads(" {\"a\": [1, -2.5e3, \"b\\n\\u00e9\\ud83d\\ude00\\ud800x\", true, null, {}] } ", "{\"a\":[1,-2.5e3,\"b\\u000aé😀\xef\xbf\xbdx\",true,null,{}]}");
	reads("\"\\u0000\\\"\\\\\\/\"", "\"\\u0000\\\"\\\\/\"");
	static const char *const wrong[] = {"", "[1,]", "{\"a\":1,}", "{a:1}", "01", "1.", "-", "nul", "\"\x01\"", "\"\\x\"", "\"\\u12\"", "[1 2]", "1 2", "+1", "\"", "[", "{", "\"\\", "{\"a\"", ",1"};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) reads(wrong[i], NULL);
	st_buffer deep = {0};
	for (int i = 0; i < 100000; i++) st_append(&deep, "[", 1);
	reads(deep.text, NULL);

	static const struct { const char *text; int64_t want; } integers[] = {{"5.0", 5}, {"-7", -7}, {"1e3", 1000}, {"-9223372036854775808", INT64_MIN},
		{"9223372036854775807", INT64_MAX}, {"99999999999999999999", INT64_MAX}, {"\"5\"", 0}};
	for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
		int64_t got = st_integer(st_parse(integers[i].text, strlen(integers[i].text)), NULL);
		if (got != integers[i].want) failures++, fprintf(stderr, "%s is %lld\n", integers[i].text, (long long)got);
	}
	is(st_write(st_int(INT64_MIN)), "-9223372036854775808");
	is(st_write(st_push(st_push(st_array(), st_real(0.5)), st_real(1e300 * 1e300))), "[0.5,null]");
	const st_json *list = st_parse("[{\"b\":[7]}]", 11);
	if (st_integer(st_at(st_get(st_at(list, 0), "b"), 0), NULL) != 7 || st_at(list, 1) || st_get(list, "b")) failures++;
	is(st_escape("a/b ~é"), "a%2Fb%20~%C3%A9");

	is(st_call("everything", "{\"what\":\"fail\"}"), "{\"kind\":\"snooze\",\"message\":\"later\",\"retry_after_ms\":1500}");
	is(st_call("nothing", "{}"), "{\"kind\":\"tool\",\"message\":\"there is no such tool\"}");
	is(st_call("everything", "{\"what\":\"get\"}"), "{\"kind\":\"cancel\",\"message\":\"http: denied: the test answers no request\"}");
	st_mock.http = answer;
	is(st_call("everything", "{\"what\":\"get\"}"), "{\"status\":200,\"type\":\"a\",\"body\":\"body\"}");
	st_mock.http = deny;
	is(st_call("everything", "{\"what\":\"get\"}"), "{\"kind\":\"cancel\",\"message\":\"http: denied: no rule\"}");
	st_mock.http = odd;
	is(st_call("everything", "{\"what\":\"get\"}"), "{\"kind\":\"transient\",\"message\":\"http: network: the response is not in the form of HTTP\"}");
	is(st_describe_tools(st_tools, 1), "{\"tools\":[{\"name\":\"everything\",\"description\":\"Does everything.\",\"input_schema\":{\"type\":\"object\",\"properties\":{"
		"\"what\":{\"type\":\"string\",\"description\":\"What to do\",\"enum\":[\"json\",\"get\",\"fail\"]},\"text\":{\"type\":\"string\"},"
		"\"list\":{\"type\":\"array\",\"items\":{\"type\":\"number\"}}},\"required\":[\"what\"],\"additionalProperties\":false},\"idempotent\":true,"
		"\"limits\":{\"timeout_ms\":1000},\"effects\":[\"h\",\"i.example.com\"]}]}");
	if (failures) fprintf(stderr, "%d failed\n", failures);
	return failures != 0;
}
