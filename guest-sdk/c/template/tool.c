#include "sdk/starling.h"

static const st_field input[] = {{"name", "string", "Whom to greet"}, {0}};
static const st_field output[] = {{"greeting", "string"}, {0}};

static st_json *example_tool(const st_json *in) {
	const char *name = st_text(in, "name");
	if (!*name) return st_discard("name is empty");
	return st_set(st_object(), "greeting", st_format("Hello, %s.", name));
}

STARLING_TOOLS({"example_tool", "Greets somebody by name.", example_tool, input, output, .idempotent = 1})
