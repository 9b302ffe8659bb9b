#include "sdk/starling.h"

static const st_field input[] = {{"name", "string", "Whom to greet"}, {0}};
static const st_field output[] = {{"greeting", "string"}, {0}};

static st_json *hello(const st_json *in) {
	return st_set(st_object(), "greeting", st_format("Hello, %s.", st_text(in, "name")));
}

STARLING_TOOLS({"hello", "Greets somebody by name.", hello, input, output, .idempotent = 1})
