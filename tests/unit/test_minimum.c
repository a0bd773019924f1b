// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The least virtual time, as D2FQ and MQFQ track it, in every order in which a
 * few threads can do their atomic operations, and in many random ones.
 */
#include "fairlane.h"
#include "mechanisms/virtual-time.h"
#include "test.h"
#include "interleave.h"

#include "mechanisms/minimum-tree.h"
#define fl_d2fq fl_d2fq_interleaved /* the other is linked, too */
#include "../../libfairlane/schedulers/d2fq.c"

/* ---- D2FQ: two loops of compare-and-swap ---- */

enum { A = 1, B, C };

static struct d2_dev d2;
static u64 least_active[4]; /* virtual times of flows that are active in the end, by id; or 0 */
static u64 begin_vt; /* of everything, for wrapping */
static unsigned long bad;

static void update(u16 id, u64 vt)
{
	d2_update_gvt(&d2, begin_vt + (vt << 20), id);
	least_active[id] = vt;
}

static void release(u16 id)
{
	d2_release_gvt(&d2, id);
	least_active[id] = 0;
}

static void a_moves(void)
{
	update(A, 5);
	update(A, 9);
}

static void a_moves_and_leaves(void)
{
	update(A, 5);
	update(A, 7);
	release(A);
}

static void a_returns(void)
{
	update(A, 3);
	release(A);
	update(A, 8);
}

/* Two completions of one flow, on two cores: who came later may be first. */
static void a_early(void)
{
	update(A, 4);
	least_active[A] = 6;
}

static void a_late(void)
{
	update(A, 6);
}

static void b_moves(void)
{
	update(B, 4);
	update(B, 6);
}

static void b_moves_and_leaves(void)
{
	update(B, 6);
	release(B);
}

static void c_moves(void)
{
	update(C, 8);
}

static void c_leaves(void)
{
	update(C, 2);
	release(C);
}

static void gvt_before(void)
{
	memset(least_active, 0, sizeof(least_active));
	atomic64_set(&d2.gvt, d2_word(begin_vt, D2_NO_HOLDER));
}

/*
 * Nobody who left holds gvt; and two more completions of each active flow, which
 * add nothing here, bring gvt to the least: it was not stuck.
 */
static void gvt_after(void)
{
	u64 least = ~0ull;
	s64 word = atomic64_read(&d2.gvt);
	u16 id;
	int round;

	if (d2_holder(word) != D2_NO_HOLDER && !least_active[d2_holder(word)])
		bad++;
	for (round = 0; round < 2; round++)
		for (id = A; id <= C; id++)
			if (least_active[id]) {
				update(id, least_active[id]);
				least = min_t(u64, least, least_active[id]);
			}
	word = atomic64_read(&d2.gvt);
	if (least != ~0ull && d2_ahead(begin_vt + (least << 20), word) != 0)
		bad++;
	/* And from there it goes on with its holder. */
	if (least != ~0ull) {
		id = d2_holder(word);
		update(id, least_active[id] + 1);
		if (d2_ahead(begin_vt + ((least + 1) << 20), atomic64_read(&d2.gvt)) != 0)
			bad++;
	}
}

static void test_gvt_in_every_order(void)
{
	static void (*const cases[][3])(void) = {
		{ a_moves, b_moves, c_moves },
		{ a_moves_and_leaves, b_moves },
		{ a_moves_and_leaves, b_moves_and_leaves },
		{ a_moves_and_leaves, b_moves_and_leaves, c_leaves },
		{ a_returns, b_moves_and_leaves },
		{ a_returns, b_moves, c_leaves },
		{ a_early, a_late, b_moves },
		{ a_early, a_late, b_moves_and_leaves },
	};
	/* The second time the word wraps in between. */
	static const u64 begins[] = { 1ull << 40, 0ull - (4ull << 20) };
	unsigned long orders = 0;
	unsigned int i, b;

	for (b = 0; b < ARRAY_SIZE(begins); b++)
		for (i = 0; i < ARRAY_SIZE(cases); i++) {
			unsigned int nr = cases[i][2] ? 3 : 2;

			begin_vt = begins[b];
			bad = 0;
			/* Of two threads every order; of three, those with few preemptions. */
			orders += interleave(cases[i], nr, nr == 2 ? ~0u : 5, gvt_before, gvt_after);
			CHECK(!bad, "case %u: %lu orders", i, bad);
		}
	CHECK(orders > 10000, "%lu orders", orders);
	printf("    %lu orders\n", orders);
}

/* C holds it, at 10. */
static void c_holds(void)
{
	memset(least_active, 0, sizeof(least_active));
	atomic64_set(&d2.gvt, d2_word(begin_vt + (10ull << 20), C));
}

static void a_behind(void)
{
	update(A, 5);
}

static void b_less_behind(void)
{
	update(B, 7);
}

static void b_ahead_leaves(void)
{
	update(B, 12);
	release(B);
}

static void c_moves_on(void)
{
	update(C, 11);
}

static void a_has_it(void)
{
	bad += atomic64_read(&d2.gvt) != d2_word(begin_vt + (5ull << 20), A);
}

static void c_has_it(void)
{
	bad += atomic64_read(&d2.gvt) != d2_word(begin_vt + (11ull << 20), C);
}

static void test_only_its_holder_raises_gvt_or_lets_go(void)
{
	static void (*const behind[])(void) = { a_behind, b_less_behind, c_moves_on };
	static void (*const ahead[])(void) = { b_ahead_leaves, c_moves_on };

	bad = 0;
	begin_vt = 0ull - (4ull << 20);
	interleave(behind, 3, ~0u, c_holds, a_has_it);
	CHECK(!bad, "who is furthest behind has it not, in %lu orders", bad);
	bad = 0;
	interleave(ahead, 2, ~0u, c_holds, c_has_it);
	CHECK(!bad, "who is ahead changed it, in %lu orders", bad);
}

/* C is found to be limited while a request of it is completed. */
static struct d2_flow limited;
static struct fl_flow root;

static void c_is_limited(void)
{
	WRITE_ONCE(limited.limited, true);
	d2_release_gvt(&d2, C);
}

static void c_completes(void)
{
	bool may = !READ_ONCE(limited.limited);

	interleave_point();
	if (may)
		update(C, 11);
}

static void limited_before(void)
{
	c_holds();
	limited.id = C;
	limited.flow.parent = &root;
	limited.limited = false;
	atomic64_set(&limited.vt, begin_vt + (11ll << 20));
}

/* From its next request on, another can have it, and raise it. */
static void c_lets_go(void)
{
	d2_class(&d2, &limited);
	update(A, 15);
	bad += atomic64_read(&d2.gvt) != d2_word(begin_vt + (15ull << 20), A);
}

static void test_who_is_limited_does_not_hold_it_up(void)
{
	static void (*const both[])(void) = { c_completes, c_is_limited };

	bad = 0;
	begin_vt = 1ull << 40;
	CHECK(interleave(both, 2, ~0u, limited_before, c_lets_go) > 5, "too few orders");
	CHECK(!bad, "it is stuck in %lu orders", bad);
}

/* ---- MQFQ: the tree of minima ---- */

#define LEAVES 6 /* two levels above them: a root with four children, of which some have children */

static struct owner {
	struct fl_mind_node nodes[FL_MIND_NODES];
} owners[64];
static void *owner_of[64];
static struct fl_mind mind;

static void set(unsigned int leaf, u64 vt)
{
	fl_mind_set(&mind, leaf, vt ? fl_mind_word(begin_vt + (vt << 20)) : FL_MIND_IDLE);
}

static void leaf_0(void)
{
	set(0, 5);
	set(0, 0);
}

static void leaf_1(void)
{
	set(1, 3);
	set(1, 5);
}

static void leaf_5(void)
{
	set(5, 4);
	set(5, 7);
}

static void leaf_5_back(void)
{
	set(5, 2);
	set(5, 0);
	set(5, 2);
}

static void mind_init(unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		owner_of[i] = &owners[i];
	fl_mind_init(&mind, owner_of, nr, offsetof(struct owner, nodes));
}

static void mind_before(void)
{
	mind_init(LEAVES);
	set(2, 6);
	set(3, 9);
}

static bool root_is_least(void)
{
	s64 least = FL_MIND_IDLE;
	unsigned int i;

	for (i = 0; i < mind.nr; i++) {
		s64 word = atomic64_read(fl_mind_node(&mind, mind.nr_inner + i));

		if (fl_mind_before(word, least))
			least = word;
	}
	return fl_mind_same(least, fl_mind_least(&mind));
}

static void mind_after(void)
{
	bad += !root_is_least();
}

static void leaf_3(void)
{
	set(3, 20);
}

static void leaf_4(void)
{
	set(4, 3);
	set(4, 15);
}

/* Three leaves below one inner node, and a refresh that brings up more than its own leaf's change. */
static void mind_before_siblings(void)
{
	mind_init(LEAVES);
	set(2, 30);
	set(3, 5);
	set(5, 7);
}

static void test_a_refresh_may_bring_up_anothers_change(void)
{
	static void (*const both[])(void) = { leaf_3, leaf_4 };

	begin_vt = 1ull << 40;
	bad = 0;
	CHECK(interleave(both, 2, 3, mind_before_siblings, mind_after) > 1000, "too few orders");
	CHECK(!bad, "the root is stuck in %lu orders", bad);
}

static void test_the_root_is_the_least_in_every_order(void)
{
	static void (*const cases[][3])(void) = {
		{ leaf_0, leaf_5 },	 { leaf_0, leaf_1 },	       { leaf_1, leaf_5_back },
		{ leaf_0, leaf_1, leaf_5 }, { leaf_0, leaf_1, leaf_5_back },
	};
	unsigned long orders = 0;
	unsigned int i;

	begin_vt = 0ull - (4ull << 20);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		unsigned int nr = cases[i][2] ? 3 : 2;

		bad = 0;
		orders += interleave(cases[i], nr, nr == 2 ? 3 : 2, mind_before, mind_after);
		CHECK(!bad, "case %u: %lu orders", i, bad);
	}
	CHECK(orders > 10000, "%lu orders", orders);
	printf("    %lu orders\n", orders);
}

static void test_the_root_is_the_least_of_any_number_of_leaves(void)
{
	unsigned int nr, i, leaf, seed = 1;

	begin_vt = 1ull << 50;
	for (nr = 1; nr <= 64; nr++) {
		mind_init(nr);
		for (i = 0; i < 300; i++) {
			leaf = rand_r(&seed) % nr;
			set(leaf, rand_r(&seed) % 8);
			CHECK(root_is_least(), "%u leaves", nr);
		}
	}
}

static const struct test tests[] = {
	{ "d2fq: the least virtual time is never stuck, in whatever order", test_gvt_in_every_order },
	{ "d2fq: nobody but its holder raises the least virtual time, or lets go of it",
	  test_only_its_holder_raises_gvt_or_lets_go },
	{ "d2fq: a flow that is found to be limited does not hold it up",
	  test_who_is_limited_does_not_hold_it_up },
	{ "mqfq: a refresh may bring up another leaf's change",
	  test_a_refresh_may_bring_up_anothers_change },
	{ "mqfq: the root is the least of the leaves, in whatever order",
	  test_the_root_is_the_least_in_every_order },
	{ "mqfq: the root is the least of any number of leaves",
	  test_the_root_is_the_least_of_any_number_of_leaves },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
