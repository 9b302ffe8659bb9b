// shop.c has the tools whose runs record.sh records. It needs no C library:
//
//     clang --target=wasm32 -O2 -nostdlib -Wl,--no-entry -o shop.wasm shop.c
#include <stdint.h>

#define IMPORT(name) __attribute__((import_module("starling:v1"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

IMPORT("now") int64_t now(void);
IMPORT("random") int64_t draw(void);
IMPORT("http") int64_t http(const char *request, uint32_t length, char *room, uint32_t size);

static char input[65536], out[1024], request[4096], response[65536];
static char *end;

EXPORT("starling_alloc") char *alloc(uint32_t n) { return n <= sizeof input ? input : 0; }

#define TOOL(name, what) "{\"name\":\"" name "\",\"description\":\"" what "\",\"input_schema\":{\"type\":\"object\"}}"

static const char tools[] = "{\"tools\":[" TOOL("clock", "Reads the clock.") "," TOOL("draw", "Draws three numbers.") ","
	TOOL("look", "Asks a server.") "," TOOL("order", "Orders from a server.") "," TOOL("fail", "Fails.") ","
	TOOL("trap", "Traps.") "," TOOL("spin", "Never returns.") "," TOOL("sum", "Adds up a thousand numbers.") "]}";

static uint64_t document(const char *text, uint32_t length) { return (uint64_t)(uintptr_t)text << 32 | length; }

EXPORT("starling_describe") uint64_t describe(void) { return document(tools, sizeof tools - 1); }

static void text(const char *s) {
	while (*s)
		*end++ = *s++;
}

static void number(int64_t n) {
	char digits[20];
	int i = 0;
	uint64_t u = n < 0 ? -(uint64_t)n : (uint64_t)n;
	if (n < 0)
		*end++ = '-';
	do
		digits[i++] = '0' + u % 10;
	while (u /= 10);
	while (i > 0)
		*end++ = digits[--i];
}

// value returns where the text of a member of the input begins, or 0.
static const char *value(const char *doc, uint32_t length, const char *member) {
	for (uint32_t at = 0; at < length; at++) {
		uint32_t i = 0;
		while (member[i] && at + i < length && doc[at + i] == member[i])
			i++;
		if (!member[i])
			return doc + at + i;
	}
	return 0;
}

static int is(const char *at, const char *name) {
	for (; *name; name++, at++)
		if (*at != *name)
			return 0;
	return *at == '"';
}

// ask makes a request and returns the status of its response, or why there is none.
static int64_t ask(const char *method, const char *url, const char *body) {
	end = request;
	text(method);
	text(" ");
	while (*url != '"')
		*end++ = *url++;
	text(" HTTP/1.1\r\nContent-Length: ");
	number(body[0] ? 6 : 0);
	text("\r\n\r\n");
	text(body);
	int64_t n = http(request, end - request, response, sizeof response);
	if (n < 12)
		return n;
	return (response[9] - '0') * 100 + (response[10] - '0') * 10 + response[11] - '0';
}

EXPORT("starling_execute") uint64_t execute(const char *doc, uint32_t length) {
	const char *tool = value(doc, length, "\"tool\":\""), *url = value(doc, length, "\"url\":\"");
	int64_t got = 0;
	if (is(tool, "clock"))
		got = now() / 1000000000;
	else if (is(tool, "draw"))
		got = (draw() ^ draw() ^ draw()) & 0xffffffff;
	else if (is(tool, "look") && url)
		got = ask("GET", url, "");
	else if (is(tool, "order") && url)
		got = ask("POST", url, "a book");
	else if (is(tool, "trap"))
		__builtin_trap();
	else if (is(tool, "spin"))
		for (volatile uint32_t i = 0;; i++)
			;
	else if (is(tool, "sum")) {
		volatile double sum = 0;
		for (int i = 1; i <= 1000; i++)
			sum += 1.0 / i;
		got = (int64_t)(sum * 1000000);
	} else {
		static const char failed[] = "{\"error\":{\"kind\":\"tool\",\"message\":\"there is nothing here\"}}";
		return document(failed, sizeof failed - 1);
	}
	end = out;
	text("{\"output\":{\"got\":");
	number(got);
	text("}}");
	return document(out, end - out);
}
