#include "sdk/starling.h"

#include <ctype.h>

static const st_field input[] = {{"text", "string"}, {0}};
static const st_field output[] = {{"words", "integer"}, {"upper", "string"},
	{"counts", "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}"}, {0}};

static st_json *transform(const st_json *in) {
	const st_json *text = st_get(in, "text");
	st_json *upper = st_string_n(text->text, text->length), *counts = st_object();
	char *letters = st_copy(text->text, text->length);
	int words = 0;
	for (size_t i = 0, from = 0; i <= text->length; i++) {
		((char *)upper->text)[i] = (char)toupper((unsigned char)letters[i]);
		if (isalnum((unsigned char)letters[i])) {
			letters[i] = (char)tolower((unsigned char)letters[i]);
			continue;
		}
		letters[i] = 0;
		if (i > from) {
			st_set(counts, letters + from, st_int(st_integer(counts, letters + from) + 1));
			words++;
		}
		from = i + 1;
	}
	st_json *out = st_object();
	st_set(out, "words", st_int(words));
	st_set(out, "upper", upper);
	return st_set(out, "counts", counts);
}

STARLING_TOOLS({"transform", "Counts the words of a text, and writes it in capital letters.", transform, input, output, .idempotent = 1})
