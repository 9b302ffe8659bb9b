// lag.c measures an exchange and a sleep on the clocks of WASI. record-clock.sh records it:
//
//     clang --target=wasm32 -O2 -nostdlib -Wl,--no-entry -o lag.wasm lag.c
#include <stdint.h>

#define EXPORT(name) __attribute__((export_name(name)))

__attribute__((import_module("starling:v1"), import_name("http"))) int64_t http(const char *request, uint32_t length, char *room, uint32_t size);
__attribute__((import_module("wasi_snapshot_preview1"), import_name("clock_time_get"))) int32_t clock_time(int32_t id, int64_t precision, int64_t *time);

static char input[65536], out[256], request[4096], room[65536];

EXPORT("starling_alloc") char *alloc(uint32_t n) { return n <= sizeof input ? input : 0; }

static uint64_t document(const char *text, uint32_t length) { return (uint64_t)(uintptr_t)text << 32 | length; }

static const char tool[] = "{\"tools\":[{\"name\":\"lag\",\"description\":\"Measures an exchange.\",\"input_schema\":{\"type\":\"object\"}}]}";

EXPORT("starling_describe") uint64_t describe(void) { return document(tool, sizeof tool - 1); }

static char *number(char *end, int64_t n) {
	char digits[20];
	int i = 0;
	do
		digits[i++] = '0' + n % 10;
	while (n /= 10);
	while (i > 0)
		*end++ = digits[--i];
	return end;
}

static char *text(char *end, const char *s) {
	while (*s)
		*end++ = *s++;
	return end;
}

static int64_t read(int id) {
	int64_t time;
	clock_time(id, 0, &time);
	return time;
}

EXPORT("starling_execute") uint64_t execute(const char *doc, uint32_t length) {
	const char *url = doc;
	while (!(url[0] == 'h' && url[1] == 't' && url[2] == 't' && url[3] == 'p'))
		url++;
	char *end = text(request, "GET ");
	while (*url != '"')
		*end++ = *url++;
	end = text(end, " HTTP/1.1\r\n\r\n");
	int64_t real = read(0), mono = read(1);
	http(request, end - request, room, sizeof room);
	mono = read(1) - mono, real = read(0) - real;
	char *to = number(text(out, "{\"output\":{\"mono\":"), mono);
	return document(out, text(number(text(to, ",\"real\":"), real), "}}") - out);
}
