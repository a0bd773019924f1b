// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data of a virtual SSD: pages in an xarray. Only what is written takes
 * memory: a page for each page of the drive, up to a bound, and about 10 bytes
 * for the array (576 in the worst case, pages far from each other).
 *
 * A page is in the array from the first write to any part of it until it is
 * discarded as a whole or the drive goes. Whoever looks it up is in an RCU
 * read-side section, and it is freed after a grace period. Nothing else guards
 * its contents: overlapping commands that are in flight at the same time have
 * no order, as on a real drive.
 */
#include <linux/bvec.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/rcupdate.h>

#include "vssd.h"

void vssd_store_init(struct vssd_store *store, u64 max_bytes)
{
	xa_init(&store->pages);
	store->nr_pages = 0;
	store->max_pages = min_t(u64, max_bytes >> PAGE_SHIFT, ULONG_MAX);
}

static void vssd_page_free(struct rcu_head *head)
{
	__free_page(container_of(head, struct page, rcu_head));
}

/* May sleep. Nobody else may use @store any more. */
void vssd_store_free(struct vssd_store *store)
{
	struct page *page;
	unsigned long index;

	xa_for_each(&store->pages, index, page) {
		__free_page(page);
		cond_resched();
	}
	xa_destroy(&store->pages);
}

static int vssd_store_add(struct vssd_store *store, unsigned long index)
{
	/* No reserves, not even for a task that writes here to free memory: it will try again. */
	const gfp_t gfp = GFP_NOWAIT | __GFP_NOMEMALLOC | __GFP_NOWARN;
	struct page *page = alloc_page(gfp | __GFP_ZERO);
	int ret = 0;

	if (!page)
		return -ENOMEM;
	xa_lock(&store->pages);
	if (xa_load(&store->pages, index)) {
		/* another write added it first */
	} else if (store->nr_pages >= store->max_pages) {
		ret = -ENOSPC;
	} else {
		ret = xa_err(__xa_store(&store->pages, index, page, gfp));
		if (!ret) {
			WRITE_ONCE(store->nr_pages, store->nr_pages + 1);
			page = NULL;
		}
	}
	xa_unlock(&store->pages);
	if (page)
		__free_page(page);
	return ret;
}

/*
 * Add a page for every byte of the range, so that a write to it cannot fail
 * half way. Stored data do not change. Does not sleep.
 *
 * Returns 0; -ENOSPC when the bound is reached; -ENOMEM when the kernel has no
 * page to give without sleeping. Pages that were added before an error stay:
 * another write may rely on them already.
 */
int vssd_store_reserve(struct vssd_store *store, u64 offset, unsigned int bytes)
{
	unsigned long index, last = (offset + bytes - 1) >> PAGE_SHIFT;
	int ret;

	for (index = offset >> PAGE_SHIFT; index <= last; index++) {
		if (xa_load(&store->pages, index))
			continue;
		ret = vssd_store_add(store, index);
		if (ret)
			return ret;
	}
	return 0;
}

/* One part of a request, within one page of the drive. */
static void vssd_store_copy_part(struct vssd_store *store, u64 pos, void *mem, unsigned int bytes,
				 bool write)
{
	struct page *page = xa_load(&store->pages, pos >> PAGE_SHIFT);
	void *data = page ? page_address(page) + offset_in_page(pos) : NULL;

	if (!data && !write)
		memset(mem, 0, bytes);
	else if (data && write)
		memcpy(data, mem, bytes);
	else if (data)
		memcpy(mem, data, bytes);
	/* else: discarded after the write reserved it, by a command in flight at the same time */
}

/* Move the data of @rq, a read or a write that is reserved. Does not sleep. */
void vssd_store_copy(struct vssd_store *store, struct request *rq)
{
	bool write = rq_data_dir(rq) == WRITE;
	u64 pos = (u64)blk_rq_pos(rq) << SECTOR_SHIFT;
	struct req_iterator iter;
	struct bio_vec bvec;
	unsigned int done, part;
	void *mem;

	rcu_read_lock();
	rq_for_each_segment(bvec, rq, iter) {
		mem = bvec_kmap_local(&bvec);
		for (done = 0; done < bvec.bv_len; done += part, pos += part) {
			part = min_t(unsigned int, bvec.bv_len - done, PAGE_SIZE - offset_in_page(pos));
			vssd_store_copy_part(store, pos, mem + done, part, write);
		}
		if (!write)
			flush_dcache_page(bvec.bv_page);
		kunmap_local(mem);
	}
	rcu_read_unlock();
}

/* Give back the pages that lie in the range as a whole. Does not sleep. */
void vssd_store_discard(struct vssd_store *store, u64 offset, unsigned int bytes)
{
	unsigned long index = DIV_ROUND_UP_ULL(offset, PAGE_SIZE);
	unsigned long end = (offset + bytes) >> PAGE_SHIFT;
	struct page *page;

	if (index >= end)
		return;
	xa_for_each_range(&store->pages, index, page, index, end - 1) {
		xa_lock(&store->pages);
		page = __xa_erase(&store->pages, index);
		if (page) /* else: another discard was first */
			WRITE_ONCE(store->nr_pages, store->nr_pages - 1);
		xa_unlock(&store->pages);
		if (page)
			call_rcu(&page->rcu_head, vssd_page_free);
	}
}
