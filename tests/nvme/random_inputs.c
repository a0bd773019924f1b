// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Runs a fuzzer's target without libFuzzer: on each file that is named, and on
 * inputs that are made from these at random, always the same ones.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#define MADE 500
#define MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t state = 88172645463325252ull;

static uint32_t below(uint32_t n)
{
	return (uint32_t)((unsigned __int128)next_random(&state) * n >> 64);
}

static size_t load(const char *path, uint8_t *data)
{
	FILE *file = fopen(path, "rb");
	size_t size;

	if (!file) {
		printf("%s: cannot be read\n", path);
		exit(2);
	}
	size = fread(data, 1, MAX, file);
	fclose(file);
	return size;
}

int main(int argc, char **argv)
{
	static uint8_t data[2 * MAX + 32];
	size_t size;
	uint32_t i, k, n;

	for (i = 1; i < (uint32_t)argc; i++) {
		size = load(argv[i], data);
		LLVMFuzzerTestOneInput(data, size);
	}
	for (i = 0; i < MADE; i++) {
		size = argc > 1 ? load(argv[1 + below((uint32_t)argc - 1)], data) : 0;
		if (argc > 1 && below(2))
			size += load(argv[1 + below((uint32_t)argc - 1)], data + size);
		for (n = below(32); n; n--)
			data[size++] = (uint8_t)below(256);
		for (k = below(20); k && size; k--)
			data[below((uint32_t)size)] = (uint8_t)below(256);
		LLVMFuzzerTestOneInput(data, size);
	}
	printf("ok   %d files, and %d inputs made from them\n", argc - 1, MADE);
	return 0;
}
