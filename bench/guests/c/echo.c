// Answers with what it was told: the smallest tool that a run can complete with.
#include "guest.h"

static u32 transform(u32 n) {
	static const char before[] = "{\"output\":";
	u32 m = sizeof before - 1;
	if (n > CAPACITY - m - 1) return 0;
	for (u32 i = 0; i < m; i++) output[i] = (u8)before[i];
	for (u32 i = 0; i < n; i++) output[m + i] = input[i];
	output[m + n] = '}';
	return m + n + 1;
}
