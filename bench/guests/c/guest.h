// The two ways in which a guest of the benchmark meets its host: the contract of
// this project, and, with -DEXTISM, that of Extism. A guest defines transform.
#ifndef GUEST_H
#define GUEST_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef CAPACITY
#define CAPACITY 16384
#endif
static u8 input[CAPACITY], output[CAPACITY];

// transform reads n bytes of input, writes output and returns its length.
static u32 transform(u32 n);

#define EXPORT(name) __attribute__((export_name(#name)))

#ifdef EXTISM

#define IMPORT(name) __attribute__((import_module("extism:host/env"), import_name(#name)))
IMPORT(input_length) u64 input_length(void);
IMPORT(input_load_u64) u64 input_load_u64(u64);
IMPORT(input_load_u8) u8 input_load_u8(u64);
IMPORT(alloc) u64 host_alloc(u64);
IMPORT(store_u64) void store_u64(u64, u64);
IMPORT(store_u8) void store_u8(u64, u8);
IMPORT(output_set) void output_set(u64, u64);

EXPORT(run) int run(void) {
	u64 n = input_length(), i = 0;
	if (n > CAPACITY) return 1;
	for (; i + 8 <= n; i += 8) *(u64 *)(input + i) = input_load_u64(i);
	for (; i < n; i++) input[i] = input_load_u8(i);
	u64 m = transform((u32)n), at = host_alloc(m);
	for (i = 0; i + 8 <= m; i += 8) store_u64(at + i, *(u64 *)(output + i));
	for (; i < m; i++) store_u8(at + i, output[i]);
	output_set(at, m);
	return 0;
}

#else

static const char description[] =
	"{\"tools\":[{\"name\":\"guest\",\"description\":\"A guest of the benchmark.\",\"input_schema\":{\"type\":\"object\"}}]}";

EXPORT(starling_alloc) u32 starling_alloc(u32 n) { return n <= CAPACITY ? (u32)(unsigned long)input : 0; }
EXPORT(starling_describe) u64 starling_describe(void) {
	return (u64)(u32)(unsigned long)description << 32 | (sizeof description - 1);
}
// starling_warmup lets memory grow before the start of every call is kept.
EXPORT(starling_warmup) void starling_warmup(void) {
	static const char sample[] = "{\"a\":[1,-2.5,\"b\",true,null,{\"c\":{}}]}";
	for (u32 i = 0; i < sizeof sample - 1; i++) input[i] = (u8)sample[i];
	transform(sizeof sample - 1);
}

EXPORT(starling_execute) u64 starling_execute(u32 at, u32 n) {
	(void)at;
	return (u64)(u32)(unsigned long)output << 32 | transform(n);
}

#endif
#endif
