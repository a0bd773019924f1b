// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "trace.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config.h"

#define SECTOR 512
#define MAX_LINE 256

struct trace *trace_open(const char *path, u64 size, u64 block, u64 nth, u64 of)
{
	struct trace *trace;
	struct stat stat_of;
	FILE *file;

	/* A pipe cannot be read again, and to open one may take for ever. */
	if (stat(path, &stat_of))
		return NULL;
	if (!S_ISREG(stat_of.st_mode)) {
		errno = 0;
		return NULL;
	}
	file = fopen(path, "r");
	if (!file)
		return NULL;
	trace = calloc(1, sizeof(*trace));
	if (!trace) {
		fclose(file);
		return NULL;
	}
	*trace = (struct trace){
		.file = file, .block = block, .size = size / block,
		.nth = nth, .of = of, .begun_ns = ~0ull
	};
	return trace;
}

void trace_close(struct trace *trace)
{
	fclose(trace->file);
	free(trace);
}

static bool wrong(struct trace *trace, const char *what)
{
	trace->wrong = what;
	return false;
}

/* Parse the number at *@text, and move *@text past it. */
static bool column(char **text, u64 *number)
{
	*text += strspn(*text, " \t");
	if (!isdigit((unsigned char)**text))
		return false;
	errno = 0;
	*number = strtoull(*text, text, 10);
	return !errno;
}

static bool parse(struct trace *trace, char *text)
{
	u64 arrival_ns, device, sector, sectors, type, bytes;

	if (!column(&text, &arrival_ns) || !column(&text, &device) || !column(&text, &sector) ||
	    !column(&text, &sectors) || !column(&text, &type) || text[strspn(text, " \t\r\n")])
		return wrong(trace, "must be five whole numbers: arrival in ns, device, first "
				    "sector, sectors, type");
	if (type > 1)
		return wrong(trace, "the type must be 0, a write, or 1, a read");
	if (!sectors || sectors > MAX_IO_BYTES / SECTOR)
		return wrong(trace, "the sectors must be from 1 to 2097152, which is 1 GiB");
	bytes = (sectors * SECTOR + trace->block - 1) / trace->block * trace->block;
	if (bytes > trace->size * trace->block)
		return wrong(trace, "the request is larger than the drive");
	if (trace->line == 1)
		trace->first_ns = arrival_ns;
	else if (arrival_ns < trace->last_ns)
		return wrong(trace, "the request arrives before that of the line above");
	if (arrival_ns - trace->first_ns > MAX_TIME_NS)
		return wrong(trace, "the request arrives more than two weeks after the first");
	trace->last_ns = arrival_ns;
	trace->next.arrival_ns = trace->round_ns + (arrival_ns - trace->first_ns);
	/* A request that would go beyond the end of the drive ends there. */
	sector %= trace->size * (trace->block / SECTOR);
	trace->next.offset = min_t(u64, sector * SECTOR / trace->block * trace->block,
				   trace->size * trace->block - bytes);
	trace->next.bytes = bytes;
	trace->next.read = type;
	return true;
}

static bool next_line(struct trace *trace);

/* Read the file from its beginning: its first request arrives at @at_ns. */
static bool start(struct trace *trace, u64 at_ns)
{
	rewind(trace->file);
	trace->round_ns = at_ns;
	trace->line = trace->first_ns = trace->last_ns = 0;
	return next_line(trace);
}

static bool next_line(struct trace *trace)
{
	u64 span_ns = trace->last_ns - trace->first_ns;
	char text[MAX_LINE];

	if (fgets(text, sizeof(text), trace->file)) {
		trace->line++;
		if (!strchr(text, '\n') && !feof(trace->file))
			return wrong(trace, "too long, or no text");
		return parse(trace, text);
	}
	if (ferror(trace->file))
		return wrong(trace, strerror(errno));
	if (!trace->line)
		return wrong(trace, "the file is empty");
	if (!span_ns)
		return wrong(trace, "the trace ends there, without two requests that arrive "
				    "at different times");
	return start(trace, trace->round_ns + span_ns + span_ns / (trace->line - 1));
}

/* From the line below on, to one that is played. */
static bool find(struct trace *trace)
{
	while ((trace->line - 1) % trace->of != trace->nth)
		if (!next_line(trace))
			return false;
	return true;
}

bool trace_check(struct trace *trace)
{
	u64 line = 0;

	if (!start(trace, 0))
		return false;
	/* When the trace begins again, all of it has been read. */
	while (trace->line > line) {
		line = trace->line;
		if (!next_line(trace))
			return false;
	}
	trace->line = line;
	return line >= trace->of ||
	       wrong(trace, "the trace ends there, with fewer requests than the tenant has jobs");
}

bool trace_begin(struct trace *trace, u64 at_ns)
{
	trace->begun_ns = at_ns;
	return start(trace, at_ns) && find(trace);
}

bool trace_next(struct trace *trace)
{
	return next_line(trace) && find(trace);
}
