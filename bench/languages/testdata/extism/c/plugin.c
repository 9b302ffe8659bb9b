// The transform of guest-sdk/c/examples with Extism's kit, which has no JSON: that is starling.h's.
#define EXTISM_IMPLEMENTATION
#define EXTISM_USE_LIBC
#include "extism-pdk.h"
#include "sdk/starling.h"
#undef STARLING_TOOLS
#define STARLING_TOOLS(...)
#include "tool.c"

int32_t EXTISM_EXPORTED_FUNCTION(run) {
	size_t n;
	char *text = extism_load_input_dup(&n);
	const char *out = st_write(transform(st_parse(text, n)));
	extism_output_buf_from_sz(out);
	return 0;
}
