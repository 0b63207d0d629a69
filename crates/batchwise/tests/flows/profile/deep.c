/* Stacks that share nothing: 46 calls deep, each to one of 16 functions by chance. */
#include <stdint.h>

static uint64_t state = 88172645463325252ull;

static uint32_t chance(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

#define ALL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define NAME(n) f##n,
#define DECLARE(n) static int f##n(int depth);
#define DEFINE(n)                                                     \
	__attribute__((noinline)) static int f##n(int depth)          \
	{                                                             \
		volatile int sum = n;                                 \
		if (depth)                                            \
			return sum + calls[chance() & 15](depth - 1); \
		for (int i = 0; i < 20000; i++)                       \
			sum += i;                                     \
		return sum;                                           \
	}

ALL(DECLARE)
static int (*const calls[])(int) = {ALL(NAME)};
ALL(DEFINE)

int main(void)
{
	volatile int sum = 0;

	for (;;)
		sum += f0(44);
}
