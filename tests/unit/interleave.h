/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Every interleaving of a few threads, one atomic operation at a time: the real
 * code, run again and again from the start, each time with another order. A
 * thread is a context of its own on one stack each; before each atomic
 * operation it lets the test decide who is next.
 *
 * Include after env.h's users and before the code to be tested.
 */
#ifndef TEST_INTERLEAVE_H
#define TEST_INTERLEAVE_H

#include <stdlib.h>
#include <ucontext.h>

#define MAX_THREADS 3
#define MAX_STEPS 4096

struct thread {
	void (*fn)(void);
	ucontext_t context;
	char *stack;
	bool ended;
};

static struct {
	struct thread threads[MAX_THREADS];
	unsigned int nr, at;
	ucontext_t main;
	/* The order: at each step the how-many-eth of those that may go on went. */
	unsigned char choice[MAX_STEPS], choices[MAX_STEPS];
	unsigned int step;
	unsigned int preemptions, most_preemptions;
	bool inside;
} world;

static void interleave_point(void)
{
	if (world.inside)
		swapcontext(&world.threads[world.at].context, &world.main);
}

static void interleave_entry(void)
{
	world.threads[world.at].fn();
	world.threads[world.at].ended = true;
	swapcontext(&world.threads[world.at].context, &world.main);
}

/* Who is next: the one that was running first, then the others if it may be preempted. */
static bool interleave_next(void)
{
	unsigned int order[MAX_THREADS], n = 0, i, chosen;
	bool running = !world.threads[world.at].ended;

	if (running)
		order[n++] = world.at;
	for (i = 0; i < world.nr; i++)
		if (i != world.at && !world.threads[i].ended &&
		    (!running || world.preemptions < world.most_preemptions))
			order[n++] = i;
	if (!n)
		return false;
	world.choices[world.step] = n;
	chosen = world.choice[world.step++];
	if (running && chosen)
		world.preemptions++;
	world.at = order[chosen];
	return true;
}

/* The next order that was not tried yet; false: all were. */
static bool interleave_advance(void)
{
	while (world.step && world.choice[world.step - 1] + 1 == world.choices[world.step - 1])
		world.step--;
	if (!world.step)
		return false;
	world.choice[world.step - 1]++;
	memset(world.choice + world.step, 0, sizeof(world.choice) - world.step);
	return true;
}

static void interleave_start(struct thread *t, void (*fn)(void))
{
	t->fn = fn;
	t->ended = false;
	getcontext(&t->context);
	t->context.uc_stack.ss_sp = t->stack;
	t->context.uc_stack.ss_size = 1 << 16;
	makecontext(&t->context, interleave_entry, 0);
}

/*
 * Run @fns to their ends in every order with at most @preemptions of a thread
 * that could have gone on; @before and @after each. Returns how many there were.
 */
static unsigned long interleave(void (*const *fns)(void), unsigned int nr, unsigned int preemptions,
				void (*before)(void), void (*after)(void))
{
	unsigned long orders = 0;
	unsigned int i;

	memset(&world, 0, sizeof(world));
	world.nr = nr;
	world.most_preemptions = preemptions;
	for (i = 0; i < nr; i++)
		world.threads[i].stack = malloc(1 << 16);
	do {
		before();
		world.step = 0;
		world.preemptions = 0;
		world.at = 0;
		for (i = 0; i < nr; i++)
			interleave_start(&world.threads[i], fns[i]);
		world.inside = true;
		while (interleave_next())
			swapcontext(&world.main, &world.threads[world.at].context);
		world.inside = false;
		after();
		orders++;
	} while (interleave_advance());
	for (i = 0; i < nr; i++)
		free(world.threads[i].stack);
	return orders;
}

#undef atomic64_read
#undef atomic64_set
#undef atomic64_xchg
#undef atomic64_try_cmpxchg
#define atomic64_read(v) (interleave_point(), READ_ONCE((v)->counter))
#define atomic64_set(v, i) (interleave_point(), WRITE_ONCE((v)->counter, i))
#define atomic64_xchg(v, i) (interleave_point(), xchg(&(v)->counter, i))
#define atomic64_try_cmpxchg(v, old, new)                                                          \
	(interleave_point(),                                                                       \
	 __atomic_compare_exchange_n(&(v)->counter, old, new, false, __ATOMIC_SEQ_CST,             \
				     __ATOMIC_SEQ_CST))

#endif
