#include <stdlib.h>
#include <string.h>

struct point {
	int x;
	double y;
	const char *name;
	struct point *next;
};

enum color { RED, GREEN = 5 };

static int table[4] = {1, 2, 3, 4};

static inline __attribute__((always_inline)) int add(int a, int b) {
	if (a > 100)
		__builtin_trap();
	return a + b;
}

__attribute__((noinline)) static int sum(struct point *p, int n) {
	int total = 0;
	enum color c = n > 3 ? GREEN : RED;
	for (int i = 0; i < n; i++) {
		total = add(total, p[i].x) + table[i & 3];
		if (c == GREEN && i == 2)
			total *= 2;
	}
	return total;
}

__attribute__((export_name("run"))) int run(int n) {
	struct point *p = malloc(n * sizeof *p);
	memset(p, 0, n * sizeof *p);
	for (int i = 0; i < n; i++) {
		p[i].x = i * 7;
		p[i].y = i / 2.0;
		p[i].name = "hello";
		p[i].next = p;
	}
	return sum(p, n);
}
