// cc -o tool_test tool_test.c && ./tool_test
#include "tool.c"

static int failures;

static void is(const char *got, const char *want) {
	if (!strcmp(got, want)) return;
	failures++;
	fprintf(stderr, "got  %s\nwant %s\n", got, want);
}

int main(void) {
	is(st_call("example_tool", "{\"name\":\"Ada\"}"), "{\"greeting\":\"Hello, Ada.\"}");
	is(st_call("example_tool", "{\"name\":\"\"}"), "{\"kind\":\"discard\",\"message\":\"name is empty\"}");
	return failures != 0;
}
