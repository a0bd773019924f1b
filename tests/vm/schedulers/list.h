/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Schedulers that fail on request, for tests in a VM; rows as in
 * libfairlane/schedulers/list.h. Only `make -C kernel TESTS=1` builds them.
 */
#define FL_TEST_SCHEDULERS(X)                                                                      \
	X(faulty, "faulty", ELEVATOR, TEST,                                                        \
	  "for tests: round robin, which fails on request")                                        \
	X(faulty_admission, "faulty-admission", RQ_QOS, TEST,                                      \
	  "for tests: admits everybody, until it fails on request")
