// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The layout of libfairlane.h, a line for each thing that programs are compiled with: see abi.txt. */
#include <stddef.h>
#include <stdio.h>

#include "libfairlane.h"

#define STRUCT(type) printf("struct %s size %zu\n", #type, sizeof(struct type))
#define MEMBER(type, name)                                                    \
	printf("member %s.%s offset %zu size %zu\n", #type, #name,            \
	       offsetof(struct type, name), sizeof(((struct type *)0)->name))
#define VALUE(name) printf("value %s %d\n", #name, (int)(name))

int main(void)
{
	_Static_assert(sizeof(void *) == 8, "abi.txt is of a machine with 64-bit pointers");

	STRUCT(fairlane_request);
	MEMBER(fairlane_request, data);
	MEMBER(fairlane_request, bytes);
	MEMBER(fairlane_request, op);
	MEMBER(fairlane_request, queue_class);
	MEMBER(fairlane_request, queue);
	MEMBER(fairlane_request, reserved);

	STRUCT(fairlane_engine);
	MEMBER(fairlane_engine, go);
	MEMBER(fairlane_engine, wake);
	MEMBER(fairlane_engine, class_weights);
	MEMBER(fairlane_engine, ctx);
	MEMBER(fairlane_engine, reserved);

	STRUCT(fairlane_stat);
	MEMBER(fairlane_stat, requests);
	MEMBER(fairlane_stat, bytes);
	MEMBER(fairlane_stat, outstanding);
	MEMBER(fairlane_stat, wait_ns);
	MEMBER(fairlane_stat, drive_ns);
	MEMBER(fairlane_stat, reserved);

	STRUCT(fairlane_variable);
	MEMBER(fairlane_variable, name);
	MEMBER(fairlane_variable, unit);
	MEMBER(fairlane_variable, help);
	MEMBER(fairlane_variable, min);
	MEMBER(fairlane_variable, max);
	MEMBER(fairlane_variable, def);
	MEMBER(fairlane_variable, reserved);

	VALUE(FAIRLANE_READ);
	VALUE(FAIRLANE_WRITE);
	VALUE(FAIRLANE_DISCARD);
	VALUE(FAIRLANE_OTHER);
	VALUE(FAIRLANE_OPS);
	VALUE(FAIRLANE_HIGH);
	VALUE(FAIRLANE_MEDIUM);
	VALUE(FAIRLANE_LOW);
	VALUE(FAIRLANE_WEIGHT_MIN);
	VALUE(FAIRLANE_WEIGHT_MAX);
	VALUE(FAIRLANE_WEIGHT_DEFAULT);
	return 0;
}
