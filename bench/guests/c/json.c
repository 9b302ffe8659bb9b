// Reads a JSON document into a tree of allocated nodes, raises every number by a
// tenth, and writes it again.
#include "guest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct node {
	char kind; // { [ " 0, or the first letter of a word
	double number;
	char *text; // of a string
	size_t length;
	char **keys;
	struct node **items;
	size_t count, capacity;
} node;

static const u8 *next, *end;
static u32 written;

static void skip(void) {
	while (next < end && (*next == ' ' || *next == '\n' || *next == '\t' || *next == '\r')) next++;
}

static char *string(size_t *length) {
	const u8 *from = ++next;
	while (next < end && *next != '"') next += *next == '\\' ? 2 : 1;
	*length = (size_t)(next - from);
	char *copy = malloc(*length + 1);
	memcpy(copy, from, *length);
	copy[*length] = 0;
	next++;
	return copy;
}

static void append(node *parent, char *key, node *child) {
	if (parent->count == parent->capacity) {
		parent->capacity = parent->capacity ? 2 * parent->capacity : 4;
		parent->keys = realloc(parent->keys, parent->capacity * sizeof *parent->keys);
		parent->items = realloc(parent->items, parent->capacity * sizeof *parent->items);
	}
	parent->keys[parent->count] = key;
	parent->items[parent->count++] = child;
}

static node *parse(void) {
	skip();
	node *v = calloc(1, sizeof *v);
	if (next >= end) return v;
	v->kind = (char)*next;
	switch (*next) {
	case '{':
	case '[':
		for (next++, skip(); next < end && *next != '}' && *next != ']'; skip()) {
			size_t unused;
			char *key = NULL;
			if (v->kind == '{') {
				key = string(&unused);
				skip();
				next++; // the colon
			}
			append(v, key, parse());
			skip();
			if (next < end && *next == ',') next++;
		}
		next++;
		break;
	case '"': v->text = string(&v->length); break;
	case 't': case 'n': next += 4; break;
	case 'f': next += 5; break;
	default: {
		char *rest;
		v->kind = '0';
		v->number = strtod((const char *)next, &rest);
		next = (const u8 *)rest > next ? (const u8 *)rest : next + 1;
	}
	}
	return v;
}

static void put(const char *s, size_t n) {
	if (written + n > CAPACITY) return;
	memcpy(output + written, s, n);
	written += (u32)n;
}

static void write_node(const node *v) {
	char number[32];
	switch (v->kind) {
	case '{':
	case '[':
		put(&v->kind, 1);
		for (size_t i = 0; i < v->count; i++) {
			if (i) put(",", 1);
			if (v->keys[i]) {
				put("\"", 1);
				put(v->keys[i], strlen(v->keys[i]));
				put("\":", 2);
			}
			write_node(v->items[i]);
		}
		put(v->kind == '{' ? "}" : "]", 1);
		break;
	case '"':
		put("\"", 1);
		put(v->text, v->length);
		put("\"", 1);
		break;
	case 't': put("true", 4); break;
	case 'f': put("false", 5); break;
	case 'n': put("null", 4); break;
	default: put(number, (size_t)snprintf(number, sizeof number, "%.10g", v->number * 1.1));
	}
}

static void release(node *v) {
	for (size_t i = 0; i < v->count; i++) {
		free(v->keys[i]);
		release(v->items[i]);
	}
	free(v->keys);
	free(v->items);
	free(v->text);
	free(v);
}

static u32 transform(u32 n) {
	next = input;
	end = input + n;
	written = 0;
	node *root = parse();
	write_node(root);
	release(root);
	return written;
}
