/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Random numbers that are the same on any machine: integers only, from a seed. */
#ifndef SIM_RANDOM_H
#define SIM_RANDOM_H

#include "../libfairlane/env.h"

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static inline u64 random_next(u64 *state)
{
	u64 z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* The generator number @index of those that @seed gives. */
static inline u64 random_seed(u64 seed, u64 index)
{
	u64 state = seed;

	state = random_next(&state) ^ index;
	return random_next(&state);
}

/* 0..n-1; the bias is below n / 2^64. */
static inline u64 random_below(u64 *state, u64 n)
{
	return (u64)(((unsigned __int128)random_next(state) * n) >> 64);
}

/*
 * An exponentially distributed number of mean @mean, by von Neumann's method:
 * comparisons of uniform numbers, and no logarithm. Each failed round adds
 * one mean; the first number of a falling run of odd length is the rest.
 */
static inline u64 random_exponential(u64 *state, u64 mean)
{
	u64 whole = 0;

	for (;;) {
		u64 first = random_next(state), last = first, next;
		bool odd = true;

		while ((next = random_next(state)) < last) {
			last = next;
			odd = !odd;
		}
		if (odd)
			return whole + (u64)(((unsigned __int128)first * mean) >> 64);
		whole += mean;
	}
}

#endif
