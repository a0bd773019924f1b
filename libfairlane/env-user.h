/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The user-space side of env.h: the kernel's names, with the kernel's
 * meaning, from C11 atomics and a futex of Linux.
 */
#ifndef FAIRLANE_ENV_USER_H
#define FAIRLANE_ENV_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

#define NSEC_PER_USEC 1000L
#define NSEC_PER_MSEC 1000000L
#define NSEC_PER_SEC 1000000000L

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define noinline __attribute__((noinline))
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define ____cacheline_aligned_in_smp __attribute__((aligned(64)))

#define min_t(type, a, b) ((type)(a) < (type)(b) ? (type)(a) : (type)(b))
#define max_t(type, a, b) ((type)(a) > (type)(b) ? (type)(a) : (type)(b))
#define clamp_t(type, v, lo, hi) min_t(type, max_t(type, v, lo), hi)

#define fls64(x) ((x) ? 64 - __builtin_clzll(x) : 0)
#define __ffs(x) ((unsigned long)__builtin_ctzl(x))

static inline u64 div64_u64(u64 a, u64 b)
{
	return a / b;
}

static inline u64 div_u64(u64 a, u32 b)
{
	return a / b;
}

static inline s64 div64_s64(s64 a, s64 b)
{
	return a / b;
}

static inline u64 mul_u64_u64_shr(u64 a, u64 b, unsigned int shift)
{
	return (unsigned __int128)a * b >> shift;
}

static inline u64 mul_u64_u64_div_u64(u64 a, u64 b, u64 c)
{
	return (u64)((unsigned __int128)a * b / c);
}

/* A thread is preempted anyway. */
#define cond_resched() ((void)0)

/* A hint, of a word that is soon to be written. */
#define prefetchw(p) __builtin_prefetch(p, 1)

static inline void *fl_alloc(size_t size)
{
	return calloc(1, size);
}

static inline void fl_free(void *p)
{
	free(p);
}

/* Memory: kernel semantics; the read-modify-write operations are full barriers. */
#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v) __atomic_store_n(&(x), v, __ATOMIC_RELAXED)
#define xchg(p, v) __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST)
#define smp_load_acquire(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define smp_store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define smp_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#ifdef __x86_64__ /* as in the kernel: the instruction is a barrier, the compiler has to know */
#define smp_mb__after_atomic() __asm__ volatile("" ::: "memory")
#else
#define smp_mb__after_atomic() smp_mb()
#endif

typedef struct {
	int counter;
} atomic_t;
typedef struct {
	s64 counter;
} atomic64_t;

#define FL_ATOMIC_OPS(prefix, type, ctype)                                                         \
	static inline ctype prefix##_read(const type *v)                                           \
	{                                                                                          \
		return READ_ONCE(v->counter);                                                      \
	}                                                                                          \
	static inline void prefix##_set(type *v, ctype i)                                          \
	{                                                                                          \
		WRITE_ONCE(v->counter, i);                                                         \
	}                                                                                          \
	static inline void prefix##_add(ctype i, type *v)                                          \
	{                                                                                          \
		__atomic_fetch_add(&v->counter, i, __ATOMIC_SEQ_CST);                              \
	}                                                                                          \
	static inline ctype prefix##_add_return(ctype i, type *v)                                  \
	{                                                                                          \
		return __atomic_add_fetch(&v->counter, i, __ATOMIC_SEQ_CST);                       \
	}                                                                                          \
	static inline void prefix##_inc(type *v)                                                   \
	{                                                                                          \
		prefix##_add(1, v);                                                                \
	}                                                                                          \
	static inline void prefix##_dec(type *v)                                                   \
	{                                                                                          \
		prefix##_add(-1, v);                                                               \
	}                                                                                          \
	static inline ctype prefix##_xchg(type *v, ctype i)                                        \
	{                                                                                          \
		return xchg(&v->counter, i);                                                       \
	}                                                                                          \
	static inline bool prefix##_try_cmpxchg(type *v, ctype *old, ctype new)                    \
	{                                                                                          \
		return __atomic_compare_exchange_n(&v->counter, old, new, false, __ATOMIC_SEQ_CST, \
						   __ATOMIC_SEQ_CST);                              \
	}
FL_ATOMIC_OPS(atomic, atomic_t, int)
FL_ATOMIC_OPS(atomic64, atomic64_t, s64)

static inline int atomic_dec_if_positive(atomic_t *v)
{
	int old = atomic_read(v);

	while (old > 0 && !atomic_try_cmpxchg(v, &old, old - 1))
		;
	return old - 1;
}

/*
 * A lock that sleeps stands in for a spinlock: a library's threads may outnumber its cores, where
 * a spinning waiter would burn the holder's time slice. It is a futex, since as a rule nobody else
 * wants it, and then to take it and to give it back is an instruction each. The calls of a POSIX
 * mutex are a third of all that a request takes here. ("Futexes Are Tricky", Drepper 2011: mutex 2.)
 */
typedef struct {
	u32 state;
} spinlock_t;

enum { FL_LOCK_FREE, FL_LOCK_TAKEN, FL_LOCK_AWAITED }; /* the last: taken, and others may sleep */

void fl_lock_wait(spinlock_t *lock); /* take it */
void fl_lock_wake(spinlock_t *lock); /* one that sleeps */

static inline bool fl_lock_try(spinlock_t *lock)
{
	u32 free = FL_LOCK_FREE;

	return __atomic_compare_exchange_n(&lock->state, &free, FL_LOCK_TAKEN, false,
					   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void fl_lock(spinlock_t *lock)
{
	if (unlikely(!fl_lock_try(lock)))
		fl_lock_wait(lock);
}

static inline void fl_unlock(spinlock_t *lock)
{
	if (unlikely(__atomic_exchange_n(&lock->state, FL_LOCK_FREE, __ATOMIC_RELEASE) ==
		     FL_LOCK_AWAITED))
		fl_lock_wake(lock);
}

/* Macros, so that the simulator and microbench/ can have others. */
#define spin_lock_init(l) ((void)((l)->state = FL_LOCK_FREE))
#define spin_lock(l) fl_lock(l)
#define spin_trylock(l) fl_lock_try(l)
#define spin_unlock(l) fl_unlock(l)
#define spin_lock_irqsave(l, flags) ((flags) = 0, spin_lock(l))
#define spin_unlock_irqrestore(l, flags) ((void)(flags), spin_unlock(l))
#define lockdep_assert_held(l) ((void)(l))

struct list_head {
	struct list_head *next, *prev;
};

#define LIST_HEAD(name) struct list_head name = { &(name), &(name) }
#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_first_entry(head, type, member) list_entry((head)->next, type, member)
#define list_first_entry_or_null(head, type, member) \
	(list_empty(head) ? NULL : list_first_entry(head, type, member))
/* Not &pos->member: the head's entry, at which a walk ends, need not be aligned as one is. */
#define __list_of(pos, member)                                                                     \
	((struct list_head *)((char *)(pos) + offsetof(__typeof__(*(pos)), member)))
#define list_next_entry(pos, member)                                                               \
	list_entry(__list_of(pos, member)->next, __typeof__(*(pos)), member)
#define list_entry_is_head(pos, head, member) (__list_of(pos, member) == (head))
#define list_for_each_entry(pos, head, member)                                                     \
	for (pos = list_first_entry(head, __typeof__(*pos), member);                               \
	     !list_entry_is_head(pos, head, member); pos = list_next_entry(pos, member))
#define list_for_each_entry_safe(pos, n, head, member)                                             \
	for (pos = list_first_entry(head, __typeof__(*pos), member),                               \
	    n = list_next_entry(pos, member);                                                      \
	     !list_entry_is_head(pos, head, member); pos = n, n = list_next_entry(n, member))

static inline void INIT_LIST_HEAD(struct list_head *h)
{
	h->next = h;
	h->prev = h;
}

/* Also read without the list's lock, as the kernel's list_empty() is. */
static inline bool list_empty(const struct list_head *h)
{
	return READ_ONCE(h->next) == h;
}

static inline void __list_insert(struct list_head *n, struct list_head *prev, struct list_head *next)
{
	next->prev = n;
	n->next = next;
	n->prev = prev;
	WRITE_ONCE(prev->next, n);
}

static inline void list_add(struct list_head *n, struct list_head *h)
{
	__list_insert(n, h, h->next);
}

static inline void list_add_tail(struct list_head *n, struct list_head *h)
{
	__list_insert(n, h->prev, h);
}

static inline void list_del_init(struct list_head *n)
{
	n->next->prev = n->prev;
	WRITE_ONCE(n->prev->next, n->next);
	INIT_LIST_HEAD(n);
}

static inline void list_move(struct list_head *n, struct list_head *h)
{
	list_del_init(n);
	list_add(n, h);
}

static inline void list_move_tail(struct list_head *n, struct list_head *h)
{
	list_del_init(n);
	list_add_tail(n, h);
}

/* A request as the library's user sees it: fill the first five, leave the rest. */
struct fl_req {
	u8 op; /* enum fl_op */
	u8 rank; /* among its flow's: the least goes first */
	u32 bytes;
	u64 arrival_ns;
	u64 dispatch_ns;
	struct list_head node;
	unsigned long priv;
	void *queue; /* struct fl_queue: where the library staged it */
};

#define fl_req_op(rq) ((rq)->op)
#define fl_req_rank(rq) ((rq)->rank)
#define fl_req_bytes(rq) ((rq)->bytes)
#define fl_req_arrival_ns(rq) ((rq)->arrival_ns)
#define fl_req_dispatch_ns(rq) ((rq)->dispatch_ns)
#define fl_req_node(rq) (&(rq)->node)
#define fl_req_of(n) container_of(n, struct fl_req, node)
#define fl_req_priv(rq) (&(rq)->priv)
#define fl_req_queue(rq) ((struct fl_queue *)(rq)->queue)

struct fl_hwq;
struct fl_dev;

u64 fl_now_ns(void);
void fl_hwq_run(struct fl_hwq *hwq);
void fl_dev_kick(struct fl_dev *dev);
void fl_dev_weights(struct fl_dev *dev, unsigned int high, unsigned int medium, unsigned int low);

#define fl_trace_refill(dev, cause, tokens, done) ((void)0)

#endif
