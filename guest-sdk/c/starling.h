// starling.h: write tools for starling-host in C.
//
//	#include "starling.h"
//
//	static const st_field input[] = {{"name", "string", "Whom to greet"}, {0}};
//	static const st_field output[] = {{"greeting", "string"}, {0}};
//
//	static st_json *hello(const st_json *in) {
//		return st_set(st_object(), "greeting", st_format("Hello, %s.", st_text(in, "name")));
//	}
//
//	STARLING_TOOLS({"hello", "Greets somebody by name.", hello, input, output})
//
// Nothing is ever freed: each call of a tool starts with fresh memory. Without a C library
// (clang --target=wasm32-unknown-unknown -nostdlib) st_format, st_real and st_number are
// missing. On any other machine than WebAssembly the functions of the host are those of
// st_mock, and st_call calls a tool: so a test is a C program that includes tool.c.
#ifndef STARLING_H
#define STARLING_H

#include <stddef.h>
#include <stdint.h>

#if defined(__wasm__) && !defined(__wasi__)
#define ST_FREESTANDING 1
#else
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#endif

#ifdef __cplusplus
#define ST_C extern "C"
#else
#define ST_C
#endif

// ---- Values: JSON ----

typedef enum { ST_NULL, ST_FALSE, ST_TRUE, ST_NUMBER, ST_STRING, ST_ARRAY, ST_OBJECT, ST_ERROR } st_kind;

// st_json is a JSON value, or the failure of a tool. Use the functions below.
typedef struct st_json {
	st_kind kind;
	const char *text; // of a string, ended by a zero byte; the digits of a number; the message of a failure
	size_t length;    // of text
	const char *name; // of a member; the kind of a failure
	size_t name_length;
	struct st_json *first, *last, *next; // the items or members
	size_t count;                        // of them; the delay of a failure in milliseconds
} st_json;

typedef struct {
	char *text; // ended by a zero byte
	size_t length, capacity;
} st_buffer;

#define st_panic(message) st_panic_at(__FILE__, __LINE__, message)
static inline void st_log(const char *text);

// ---- The functions of the host ----

#ifdef __wasm__
#define ST_IMPORT(module, name) ST_C __attribute__((import_module(module), import_name(name)))
#define ST_EXPORT(name) ST_C __attribute__((export_name(name)))
ST_IMPORT("starling:v1", "now") uint64_t st_import_now(void);
ST_IMPORT("starling:v1", "random") uint64_t st_import_random(void);
ST_IMPORT("starling:v1", "http") int64_t st_import_http(const void *, size_t, void *, size_t);
ST_IMPORT("wasi_snapshot_preview1", "fd_write") uint16_t st_import_write(uint32_t, const void *, size_t, size_t *);
#else
// st_mock answers the functions of the host in a test. http returns a response, as
// "HTTP/1.1 200 OK\r\n\r\nbody", or a status and its text, as "-1 no rule".
static struct {
	uint64_t now, random;
	const char *(*http)(const char *request);
} st_mock;
#endif

// st_now returns the time of day, in nanoseconds since 1970-01-01T00:00:00Z.
static inline uint64_t st_now(void) {
#ifdef __wasm__
	return st_import_now();
#else
	return st_mock.now;
#endif
}

// st_random returns 64 random bits.
static inline uint64_t st_random(void) {
#ifdef __wasm__
	return st_import_random();
#else
	return st_mock.random;
#endif
}

#ifdef ST_FREESTANDING
// The compiler calls these functions.
ST_C __attribute__((weak, no_builtin("memcpy"))) void *memcpy(void *to, const void *from, size_t n) {
	for (size_t i = 0; i < n; i++) ((char *)to)[i] = ((const char *)from)[i];
	return to;
}
ST_C __attribute__((weak, no_builtin("memset"))) void *memset(void *at, int byte, size_t n) {
	for (size_t i = 0; i < n; i++) ((char *)at)[i] = (char)byte;
	return at;
}
ST_C __attribute__((weak, no_builtin("memcmp"))) int memcmp(const void *a, const void *b, size_t n) {
	for (size_t i = 0; i < n; i++)
		if (((const unsigned char *)a)[i] != ((const unsigned char *)b)[i]) return ((const unsigned char *)a)[i] - ((const unsigned char *)b)[i];
	return 0;
}
ST_C __attribute__((weak, no_builtin("strlen"))) size_t strlen(const char *text) {
	size_t n = 0;
	while (text[n]) n++;
	return n;
}
ST_C extern unsigned char __heap_base;
#endif

static inline void st_panic_at(const char *file, int line, const char *message);

// st_alloc returns zeroed memory.
static inline void *st_alloc(size_t n) {
#ifdef ST_FREESTANDING
	static uintptr_t next;
	if (!next) next = ((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15;
	uintptr_t at = next, end = at + ((n + 15) & ~(size_t)15), have = __builtin_wasm_memory_size(0) * 65536;
	if (end < at || (end > have && __builtin_wasm_memory_grow(0, (end - have + 65535) / 65536) == (size_t)-1)) __builtin_trap();
	next = end;
	return (void *)at;
#else
	void *at = calloc(1, n ? n : 1);
	if (!at) st_panic("out of memory");
	return at;
#endif
}

// st_copy returns a copy of n bytes, ended by a zero byte.
static inline char *st_copy(const char *text, size_t n) {
	char *copy = (char *)st_alloc(n + 1);
	memcpy(copy, text, n);
	return copy;
}

static inline void st_append(st_buffer *b, const char *text, size_t n) {
	if (b->length + n + 1 > b->capacity) {
		size_t capacity = (b->length + n + 32) * 2;
		char *larger = (char *)st_alloc(capacity);
		if (b->length) memcpy(larger, b->text, b->length);
		b->text = larger;
		b->capacity = capacity;
	}
	memcpy(b->text + b->length, text, n);
	b->length += n;
	b->text[b->length] = 0;
}

static inline void st_append_text(st_buffer *b, const char *text) { st_append(b, text, strlen(text)); }

static inline void st_append_integer(st_buffer *b, int64_t value) {
	char digits[21];
	size_t at = sizeof digits;
	uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
	do digits[--at] = (char)('0' + rest % 10);
	while (rest /= 10);
	if (value < 0) digits[--at] = '-';
	st_append(b, digits + at, sizeof digits - at);
}

// st_log writes a line to the log of the call.
static inline void st_log(const char *text) {
	st_buffer line = {0, 0, 0};
	st_append_text(&line, text);
	st_append(&line, "\n", 1);
#ifdef __wasm__
	struct {
		const char *at;
		size_t length;
	} area = {line.text, line.length};
	size_t written;
	st_import_write(2, &area, 1, &written);
#else
	fputs(line.text, stderr);
#endif
}

// st_panic ends the call at once. Its message and place are in the log.
static inline void st_panic_at(const char *file, int line, const char *message) {
	st_buffer text = {0, 0, 0};
	st_append_text(&text, "panic at ");
	st_append_text(&text, file);
	st_append_text(&text, ":");
	st_append_integer(&text, line);
	st_append_text(&text, ": ");
	st_append_text(&text, message);
	st_log(text.text);
	__builtin_trap();
}

// ---- Reading values ----

// st_get returns the member of an object, or NULL. Without a name it returns the value.
static inline const st_json *st_get(const st_json *value, const char *name) {
	if (!name || !value) return value;
	size_t n = strlen(name);
	if (value->kind == ST_OBJECT)
		for (const st_json *m = value->first; m; m = m->next)
			if (m->name_length == n && !memcmp(m->name, name, n)) return m;
	return NULL;
}

// st_at returns an item of an array, or a member by its number, or NULL.
static inline const st_json *st_at(const st_json *value, size_t i) {
	const st_json *item = value && (value->kind == ST_ARRAY || value->kind == ST_OBJECT) ? value->first : NULL;
	while (item && i--) item = item->next;
	return item;
}

// st_text returns the text of a string member, or "". st_get(...)->length is its length, for a
// text that has zero bytes.
static inline const char *st_text(const st_json *value, const char *name) {
	value = st_get(value, name);
	return value && value->kind == ST_STRING ? value->text : "";
}

// st_bool reports whether a member is true.
static inline int st_bool(const st_json *value, const char *name) {
	value = st_get(value, name);
	return value && value->kind == ST_TRUE;
}

// st_integer returns the integer part of a number, at most what an int64_t holds, or 0.
static inline int64_t st_integer(const st_json *value, const char *name) {
	value = st_get(value, name);
	if (!value || value->kind != ST_NUMBER) return 0;
	const char *digit = value->text;
	int negative = *digit == '-';
	uint64_t sum = 0, most = (uint64_t)INT64_MAX + (uint64_t)negative;
	for (digit += negative; *digit >= '0' && *digit <= '9'; digit++) {
		uint64_t d = (uint64_t)(*digit - '0');
		sum = sum > (most - d) / 10 ? most : sum * 10 + d;
	}
#ifndef ST_FREESTANDING
	for (const char *e = digit; *e; e++)
		if (*e == 'e' || *e == 'E') {
			double real = strtod(value->text, NULL);
			return real >= 9.2e18 ? INT64_MAX : real <= -9.2e18 ? INT64_MIN : (int64_t)real;
		}
#endif
	return negative ? (int64_t)(0 - sum) : (int64_t)sum;
}

#ifndef ST_FREESTANDING
// st_number returns a number, or 0.
static inline double st_number(const st_json *value, const char *name) {
	value = st_get(value, name);
	return value && value->kind == ST_NUMBER ? strtod(value->text, NULL) : 0;
}
#endif

// ---- Making values ----

static inline st_json *st_make(st_kind kind, const char *text, size_t n) {
	st_json *value = (st_json *)st_alloc(sizeof *value);
	value->kind = kind;
	value->text = text;
	value->length = n;
	return value;
}

static inline st_json *st_null(void) { return st_make(ST_NULL, "", 0); }
static inline st_json *st_boolean(int value) { return st_make(value ? ST_TRUE : ST_FALSE, "", 0); }
static inline st_json *st_object(void) { return st_make(ST_OBJECT, "", 0); }
static inline st_json *st_array(void) { return st_make(ST_ARRAY, "", 0); }
static inline st_json *st_string_n(const char *text, size_t n) { return st_make(ST_STRING, st_copy(text, n), n); }
static inline st_json *st_string(const char *text) { return st_string_n(text, strlen(text)); }

static inline st_json *st_int(int64_t value) {
	st_buffer digits = {0, 0, 0};
	st_append_integer(&digits, value);
	return st_make(ST_NUMBER, digits.text, digits.length);
}

#ifndef ST_FREESTANDING
// st_real makes a number. One that JSON does not have becomes null.
static inline st_json *st_real(double value) {
	char text[40];
	int n = snprintf(text, sizeof text, "%.17g", value);
	if (value != value || value - value != 0) return st_null();
	return st_make(ST_NUMBER, st_copy(text, (size_t)n), (size_t)n);
}

// st_print returns a formatted text.
__attribute__((format(printf, 1, 2))) static inline char *st_print(const char *format, ...) {
	va_list arguments;
	va_start(arguments, format);
	int n = vsnprintf(NULL, 0, format, arguments);
	va_end(arguments);
	if (n < 0) st_panic(format);
	char *text = (char *)st_alloc((size_t)n + 1);
	va_start(arguments, format);
	vsnprintf(text, (size_t)n + 1, format, arguments);
	va_end(arguments);
	return text;
}

// st_format makes a string, as in st_format("Hello, %s.", name).
#define st_format(...) st_string(st_print(__VA_ARGS__))
#endif

// st_push appends an item to an array, and returns the array. It takes a copy: complete the
// item first.
static inline st_json *st_push(st_json *array, const st_json *item) {
	st_json *copy = st_make(ST_NULL, "", 0);
	if (item) *copy = *item;
	copy->next = NULL;
	if (array->last) array->last->next = copy;
	else array->first = copy;
	array->last = copy;
	array->count++;
	return array;
}

// st_set adds a member to an object, or replaces it, and returns the object. It takes a copy
// of the value: complete the value first.
static inline st_json *st_set(st_json *object, const char *name, const st_json *value) {
	st_json *member = (st_json *)st_get(object, name);
	if (member) {
		st_json *next = member->next;
		st_json copy = value ? *value : *st_null();
		copy.name = member->name;
		copy.name_length = member->name_length;
		copy.next = next;
		*member = copy;
		return object;
	}
	st_push(object, value);
	object->last->name_length = strlen(name);
	object->last->name = st_copy(name, object->last->name_length);
	return object;
}

// ---- Failures ----

static inline st_json *st_failure(const char *kind, const char *message, size_t after_ms) {
	st_json *failure = st_make(ST_ERROR, st_copy(message, strlen(message)), strlen(message));
	failure->name = kind;
	failure->count = after_ms;
	return failure;
}

// A tool returns one of these in place of its output.
#define st_fail(message) st_failure("tool", message, 0)           // the tool failed
#define st_transient(message) st_failure("transient", message, 0) // another attempt may succeed
#define st_cancel(message) st_failure("cancel", message, 0)       // final; the input is not at fault
#define st_discard(message) st_failure("discard", message, 0)     // final; this input can never succeed
#define st_snooze(after_ms, message) st_failure("snooze", message, after_ms)

// ---- Text of JSON ----

static inline void st_write_string(st_buffer *b, const char *text, size_t n) {
	static const char hex[] = "0123456789abcdef";
	st_append(b, "\"", 1);
	for (size_t from = 0, i = 0; i <= n; i++) {
		unsigned char c = i < n ? (unsigned char)text[i] : '"';
		if (c >= 0x20 && c != '"' && c != '\\') continue;
		st_append(b, text + from, i - from);
		from = i + 1;
		char escape[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
		if (i == n) break;
		if (c == '"' || c == '\\') escape[1] = (char)c, st_append(b, escape, 2);
		else st_append(b, escape, 6);
	}
	st_append(b, "\"", 1);
}

static inline void st_write_value(st_buffer *b, const st_json *value) {
	static const char *const words[] = {"null", "false", "true"};
	if (value->kind <= ST_TRUE) st_append_text(b, words[value->kind]);
	else if (value->kind == ST_NUMBER) st_append(b, value->text, value->length);
	else if (value->kind == ST_STRING || value->kind == ST_ERROR) st_write_string(b, value->text, value->length);
	else {
		st_append(b, value->kind == ST_ARRAY ? "[" : "{", 1);
		for (const st_json *item = value->first; item; item = item->next) {
			if (item != value->first) st_append(b, ",", 1);
			if (value->kind == ST_OBJECT) {
				st_write_string(b, item->name, item->name_length);
				st_append(b, ":", 1);
			}
			st_write_value(b, item);
		}
		st_append(b, value->kind == ST_ARRAY ? "]" : "}", 1);
	}
}

// st_write returns the text of a value.
static inline const char *st_write(const st_json *value) {
	st_buffer b = {0, 0, 0};
	st_write_value(&b, value);
	return b.text;
}

typedef struct {
	const char *at, *end;
	int depth;
} st_parser;

static inline int st_peek(st_parser *p) { return p->at < p->end ? (unsigned char)*p->at : -1; }

static inline int st_next(st_parser *p) {
	while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r')) p->at++;
	return st_peek(p);
}

static inline int st_hex4(st_parser *p, uint32_t *unit) {
	*unit = 0;
	for (int i = 0; i < 4; i++, p->at++) {
		int c = st_peek(p);
		int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
		if (digit < 0) return 0;
		*unit = *unit * 16 + (uint32_t)digit;
	}
	return 1;
}

static inline void st_append_rune(st_buffer *b, uint32_t code) {
	char text[4];
	size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	for (size_t i = n; i-- > 1; code >>= 6) text[i] = (char)(0x80 | (code & 0x3f));
	text[0] = (char)(n == 1 ? code : code | (0xf00u >> n & 0xf0u));
	st_append(b, text, n);
}

static inline int st_parse_string(st_parser *p, st_buffer *out) {
	if (st_next(p) != '"') return 0;
	st_append(out, "", 0);
	for (p->at++;; p->at++) {
		const char *from = p->at;
		while (p->at < p->end && (unsigned char)*p->at >= 0x20 && *p->at != '"' && *p->at != '\\') p->at++;
		st_append(out, from, (size_t)(p->at - from));
		int c = st_peek(p);
		if (c == '"') return p->at++, 1;
		if (c != '\\') return 0;
		p->at++;
		uint32_t unit, low;
		switch (c = st_peek(p)) {
		case '"': case '\\': case '/': st_append_rune(out, (uint32_t)c); break;
		case 'b': st_append(out, "\b", 1); break;
		case 'f': st_append(out, "\f", 1); break;
		case 'n': st_append(out, "\n", 1); break;
		case 'r': st_append(out, "\r", 1); break;
		case 't': st_append(out, "\t", 1); break;
		case 'u':
			p->at++;
			if (!st_hex4(p, &unit)) return 0;
			if (unit >= 0xd800 && unit < 0xdc00 && p->end - p->at >= 6 && p->at[0] == '\\' && p->at[1] == 'u') {
				st_parser after = {p->at + 2, p->end, 0};
				if (st_hex4(&after, &low) && low >= 0xdc00 && low < 0xe000) {
					unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
					p->at = after.at;
				}
			}
			st_append_rune(out, unit >= 0xd800 && unit < 0xe000 ? 0xfffd : unit);
			p->at--;
			break;
		default: return 0;
		}
	}
}

static inline int st_digits(st_parser *p) {
	const char *from = p->at;
	while (st_peek(p) >= '0' && st_peek(p) <= '9') p->at++;
	return p->at > from;
}

// st_parse_value reads a value, or returns NULL.
static inline st_json *st_parse_value(st_parser *p) {
	int c = st_next(p);
	const char *from = p->at;
	if (c == '"') {
		st_buffer text = {0, 0, 0};
		return st_parse_string(p, &text) ? st_make(ST_STRING, text.text, text.length) : NULL;
	}
	if (c == '[' || c == '{') {
		st_json *list = c == '[' ? st_array() : st_object();
		int end = c == '[' ? ']' : '}';
		p->at++;
		if (++p->depth > 500) return NULL;
		for (int first = 1; (c = st_next(p)) != end; first = 0) {
			if (!first) {
				if (c != ',') return NULL;
				p->at++;
			}
			st_buffer name = {0, 0, 0};
			if (end == '}') {
				if (!st_parse_string(p, &name) || st_next(p) != ':') return NULL;
				p->at++;
			}
			st_json *item = st_parse_value(p);
			if (!item) return NULL;
			st_push(list, item);
			list->last->name = name.text;
			list->last->name_length = name.length;
		}
		p->at++;
		p->depth--;
		return list;
	}
	static const char *const words[] = {"null", "false", "true"};
	for (int i = 0; i < 3; i++) {
		size_t n = strlen(words[i]);
		if ((size_t)(p->end - p->at) >= n && !memcmp(p->at, words[i], n)) {
			p->at += n;
			return st_make((st_kind)i, "", 0);
		}
	}
	if (c == '-') p->at++;
	const char *digits = p->at;
	if (!st_digits(p) || (*digits == '0' && p->at > digits + 1)) return NULL;
	if (st_peek(p) == '.' && (p->at++, !st_digits(p))) return NULL;
	if (st_peek(p) == 'e' || st_peek(p) == 'E') {
		p->at++;
		if (st_peek(p) == '+' || st_peek(p) == '-') p->at++;
		if (!st_digits(p)) return NULL;
	}
	return st_make(ST_NUMBER, st_copy(from, (size_t)(p->at - from)), (size_t)(p->at - from));
}

// st_parse reads a JSON document, or returns NULL.
static inline const st_json *st_parse(const char *text, size_t length) {
	st_parser p = {text, text + length, 0};
	st_json *value = st_parse_value(&p);
	return value && st_next(&p) < 0 ? value : NULL;
}

// ---- HTTP ----

typedef struct {
	const char *method, *url;
	st_buffer headers;
	const char *body;
	size_t body_length;
	int retries; // how often to repeat the request after a passing failure
} st_request;

typedef struct {
	int status;       // for instance 200, or 0 if there is no response
	st_json *failure; // why, as a tool may return it: transient, cancel or tool
	const char *reason; // denied, network, timeout, too_large or malformed
	int passing;        // whether another attempt may succeed
	const char *headers;
	const char *body; // ended by a zero byte
	size_t body_length;
} st_response;

// st_request_to makes a request. Bytes of the address other than printable ASCII are
// percent-encoded.
static inline st_request *st_request_to(const char *method, const char *url) {
	st_request *request = (st_request *)st_alloc(sizeof *request);
	request->method = method;
	request->url = url;
	return request;
}

static inline st_request *st_get_request(const char *url) { return st_request_to("GET", url); }

// st_header adds a header, such as Starling-Effect: the name of the exchange in the record.
static inline st_request *st_header(st_request *request, const char *name, const char *value) {
	const char *parts[] = {name, ": ", value, "\r\n"};
	for (int i = 0; i < 4; i++) {
		for (const char *c = parts[i]; i % 2 == 0 && *c; c++)
			if (*c == '\r' || *c == '\n') st_panic("a header has a line break");
		st_append_text(&request->headers, parts[i]);
	}
	return request;
}

static inline void st_append_escaped(st_buffer *b, const char *text, int segment) {
	static const char hex[] = "0123456789ABCDEF";
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		int word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
		char escape[3] = {'%', hex[c >> 4], hex[c & 15]};
		if (segment ? word : c > ' ' && c < 0x7f) st_append(b, text, 1);
		else st_append(b, escape, 3);
	}
}

// st_escape returns a text as one segment of a path, or as a value of a query.
static inline const char *st_escape(const char *text) {
	st_buffer b = {0, 0, 0};
	st_append(&b, "", 0);
	st_append_escaped(&b, text, 1);
	return b.text;
}

// st_exchange makes one exchange.
static inline st_response st_exchange(const st_buffer *message) {
	st_response response = {0, NULL, NULL, 0, "", "", 0};
	st_buffer answer = {0, 0, 0};
	int64_t status;
#ifdef __wasm__
	size_t room = 32768;
	answer.text = (char *)st_alloc(room + 1);
	status = st_import_http(message->text, message->length, answer.text, room);
	int64_t n = status >= 0 ? status : st_import_http(NULL, 0, answer.text, room);
	if (n > (int64_t)room) {
		answer.text = (char *)st_alloc((size_t)n + 1);
		n = st_import_http(NULL, 0, answer.text, (size_t)n);
	}
	answer.length = n > 0 ? (size_t)n : 0;
	answer.text[answer.length] = 0;
#else
	st_append_text(&answer, st_mock.http ? st_mock.http(message->text) : "-1 the test answers no request");
	status = answer.text[0] == '-' ? strtol(answer.text, &answer.text, 10) : (int64_t)answer.length;
	if (status < 0) answer.length = strlen(answer.text += *answer.text == ' ');
#endif
	if (status >= 0) {
		// The status line, headers, an empty line, the body.
		const char *end = answer.text, *line = answer.text;
		while (end + 4 <= answer.text + answer.length && memcmp(end, "\r\n\r\n", 4)) end++;
		while (*line && *line != ' ') line++;
		for (line += *line == ' '; *line >= '0' && *line <= '9' && response.status < 1000; line++) response.status = response.status * 10 + (*line - '0');
		if (end + 4 <= answer.text + answer.length && response.status >= 100 && response.status < 1000) {
			response.body = end + 4;
			response.body_length = (size_t)(answer.text + answer.length - response.body);
			while (*line != '\n') line++;
			response.headers = st_copy(line, (size_t)(end - line) + 2);
			response.passing = response.status == 429 || (response.status >= 502 && response.status <= 504);
			return response;
		}
		response.status = 0;
		status = -2;
		st_buffer wrong = {0, 0, 0};
		st_append_text(&wrong, "the response is not in the form of HTTP");
		answer = wrong;
	}
	static const char *const reasons[] = {"denied", "network", "timeout", "too_large", "malformed"};
	response.reason = reasons[status >= -5 ? -1 - status : 1];
	response.passing = response.reason == reasons[1] || response.reason == reasons[2];
	st_buffer text = {0, 0, 0};
	st_append_text(&text, "http: ");
	st_append_text(&text, response.reason);
	st_append_text(&text, ": ");
	st_append(&text, answer.text, answer.length);
	response.failure = st_failure(response.reason == reasons[0] ? "cancel" : response.passing ? "transient" : "tool", text.text, 0);
	return response;
}

// st_send sends the request. It sends it again, up to retries times, if the connection fails
// or takes too long, or the status is 429, 502, 503 or 504.
static inline st_response st_send(const st_request *request) {
	st_buffer message = {0, 0, 0};
	size_t fragment = 0;
	while (request->url[fragment] && request->url[fragment] != '#') fragment++;
	st_append_text(&message, request->method);
	st_append(&message, " ", 1);
	st_append_escaped(&message, st_copy(request->url, fragment), 0);
	st_append_text(&message, " HTTP/1.1\r\n");
	st_append(&message, request->headers.text ? request->headers.text : "", request->headers.length);
	if (request->body_length || request->method[0] == 'P') { // POST, PUT, PATCH
		st_append_text(&message, "Content-Length: ");
		st_append_integer(&message, (int64_t)request->body_length);
		st_append_text(&message, "\r\n");
	}
	st_append_text(&message, "\r\n");
	st_append(&message, request->body ? request->body : "", request->body_length);
	for (int left = request->retries;; left--) {
		st_response response = st_exchange(&message);
		if (left <= 0 || !response.passing) return response;
	}
}

// st_response_header returns the first header with this name, in any case, or "".
static inline const char *st_response_header(const st_response *response, const char *name) {
	size_t n = strlen(name);
	for (const char *line = response->headers; *line; line++) {
		if (*line != '\n') continue;
		size_t i = 0;
		while (i < n && line[1 + i] && ((line[1 + i] ^ name[i]) & ~0x20) == 0) i++;
		if (i < n || line[1 + n] != ':') continue;
		const char *from = line + 2 + n, *to = from;
		while (*from == ' ') from++;
		for (to = from; *to && *to != '\r'; to++) {}
		return st_copy(from, (size_t)(to - from));
	}
	return "";
}

// st_response_json reads the body, or returns NULL.
static inline const st_json *st_response_json(const st_response *response) { return st_parse(response->body, response->body_length); }

// ---- Tools ----

// st_field describes a member of an input or output. A list of them ends with {0}.
typedef struct {
	const char *name;
	const char *type; // string, integer, number, boolean, object; string[] and so on; or a schema as JSON
	const char *description;
	int optional;
	const char *keywords; // more of the schema, such as "{\"minimum\":1}"
} st_field;

typedef struct {
	const char *name, *description;
	st_json *(*execute)(const st_json *input); // returns the output or a failure
	const st_field *input, *output;            // NULL: any object; no schema
	int idempotent;
	const char *effects; // the hosts that the tool wants to reach, as "a.example.com b.example.com"
	const char *limits;  // the limits that the tool wants to have, as "{\"timeout_ms\":1000}"
} st_tool;

// st_context has the context of the call: run_id, call_id, attempt and perhaps variables.
static const st_json *st_context_;
static inline const st_json *st_context(void) { return st_context_; }

static inline st_json *st_parse_literal(const char *text) {
	st_json *value = (st_json *)st_parse(text, strlen(text));
	if (!value) st_panic(text);
	return value;
}

static inline st_json *st_schema(const st_field *fields) {
	st_json *properties = st_object(), *required = st_array(), *schema = st_object();
	st_set(schema, "type", st_string("object"));
	if (!fields) return schema;
	for (; fields->name; fields++) {
		size_t n = strlen(fields->type);
		st_json *member = fields->type[0] == '{' ? st_parse_literal(fields->type) : st_object();
		if (n > 2 && fields->type[n - 1] == ']') {
			st_set(member, "type", st_string("array"));
			st_set(member, "items", st_set(st_object(), "type", st_string_n(fields->type, n - 2)));
		} else if (fields->type[0] != '{') {
			st_set(member, "type", st_string(fields->type));
		}
		if (fields->description) st_set(member, "description", st_string(fields->description));
		if (fields->keywords)
			for (const st_json *k = st_parse_literal(fields->keywords)->first; k; k = k->next) st_set(member, k->name, k);
		if (!fields->optional) st_push(required, st_string(fields->name));
		st_set(properties, fields->name, member);
	}
	st_set(schema, "properties", properties);
	st_set(schema, "required", required);
	return st_set(schema, "additionalProperties", st_boolean(0));
}

static inline const char *st_describe_tools(const st_tool *tools, size_t n) {
	st_json *list = st_array();
	for (; n--; tools++) {
		st_json *tool = st_set(st_object(), "name", st_string(tools->name));
		st_set(tool, "description", st_string(tools->description));
		st_set(tool, "input_schema", st_schema(tools->input));
		if (tools->output) st_set(tool, "output_schema", st_schema(tools->output));
		if (tools->idempotent) st_set(tool, "idempotent", st_boolean(1));
		if (tools->limits) st_set(tool, "limits", st_parse_literal(tools->limits));
		st_json *effects = st_array();
		for (const char *from = tools->effects, *to; from && *from; from = to) {
			for (to = from; *to && *to != ' '; to++) {}
			st_push(effects, st_string_n(from, (size_t)(to - from)));
			while (*to == ' ') to++;
		}
		if (effects->count) st_set(tool, "effects", effects);
		st_push(list, tool);
	}
	return st_write(st_set(st_object(), "tools", list));
}

// st_run_tool runs the call that a document asks for, and returns the document of its outcome.
static inline const char *st_run_tool(const st_tool *tools, size_t n, const char *text, size_t length) {
	const st_json *document = st_parse(text, length);
	st_context_ = st_get(document, "context");
	st_json *result = st_fail("there is no such tool");
	for (; n--; tools++) {
		const char *name = st_text(document, "tool");
		if (strlen(name) == strlen(tools->name) && !memcmp(name, tools->name, strlen(name))) {
			result = tools->execute(st_get(document, "input"));
			break;
		}
	}
	if (!result) result = st_null();
	st_json *outcome = st_object();
	if (result->kind != ST_ERROR) return st_write(st_set(outcome, "output", result));
	st_json *failure = st_set(st_object(), "kind", st_string(result->name));
	st_set(failure, "message", st_string(result->text));
	if (result->count) st_set(failure, "retry_after_ms", st_int((int64_t)result->count));
	return st_write(st_set(outcome, "error", failure));
}

static inline uint64_t st_document(const char *text) { return (uint64_t)(uintptr_t)text << 32 | strlen(text); }

// STARLING_TOOLS makes these st_tool the tools of the module. It stands once, at the end.
#ifdef __wasm__
#define STARLING_TOOLS(...)                                                                                                        \
	static const st_tool st_tools[] = {__VA_ARGS__};                                                                               \
	ST_EXPORT("starling_alloc") void *st_export_alloc(size_t n) { return st_alloc(n); }                                            \
	ST_EXPORT("starling_describe") uint64_t st_export_describe(void) {                                                             \
		return st_document(st_describe_tools(st_tools, sizeof st_tools / sizeof *st_tools));                                       \
	}                                                                                                                              \
	ST_EXPORT("starling_execute") uint64_t st_export_execute(const char *input, size_t length) {                                   \
		return st_document(st_run_tool(st_tools, sizeof st_tools / sizeof *st_tools, input, length));                              \
	}
#else
// In a test, st_call returns the output of a tool for an input, or its failure.
#define STARLING_TOOLS(...)                                                                                                        \
	static const st_tool st_tools[] = {__VA_ARGS__};                                                                               \
	__attribute__((unused)) static const char *st_call(const char *tool, const char *input) {                                      \
		st_json *document = st_set(st_set(st_object(), "tool", st_string(tool)), "input", st_parse_literal(input));                \
		st_set(document, "context", st_parse_literal("{\"run_id\":\"run\",\"call_id\":\"call\",\"attempt\":1}"));                  \
		const char *text = st_write(document);                                                                                     \
		text = st_run_tool(st_tools, sizeof st_tools / sizeof *st_tools, text, strlen(text));                                      \
		return st_write(st_parse_literal(text)->first);                                                                            \
	}
#endif

#endif
