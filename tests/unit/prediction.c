// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * How the predicted total follows the drive, by our rule (prediction = 1) and by that of
 * the authors' released code (2): four tenants, weights 1000:500:250:100; the drive halves
 * its speed after 1 s and doubles it after 2 s. A line each period: what the drive can do,
 * and for both rules what is predicted, what the tenants got of it, and the worst
 * error of a share.
 */
#include <math.h>
#include <stdio.h>

#include "drive.h"

#define PERIODS 30

static const u32 weights[] = { 1000, 500, 250, 100 };

struct period {
	double capacity, used, worst;
	u64 predicted;
};

static void play(u64 prediction, struct period *periods)
{
	static struct drive d;
	struct tenant *t[4];
	unsigned int i, n;

	drive_init(&d, &fl_kyber_fairness, 2, 32, 4 * MSEC);
	fl_set(d.dev, "prediction", prediction);
	for (i = 0; i < 4; i++)
		t[i] = drive_tenant(&d, NULL, weights[i], 64);
	drive_start(&d);
	for (n = 0; n < PERIODS; n++) {
		struct period *p = &periods[n];

		d.read_ns = n >= 10 && n < 20 ? 8 * MSEC : 4 * MSEC;
		drive_mark(&d);
		drive_run(&d, 100 * MSEC);
		p->capacity = drive_capacity(&d) / 10;
		p->used = drive_iops(&d) / 10;
		p->predicted = drive_var(&d, "predicted_total") / FL_COST_ONE;
		p->worst = 0;
		for (i = 0; i < 4; i++)
			p->worst = fmax(p->worst, fabs(drive_share(&d, t[i]) * 1850 / weights[i] - 1));
	}
	drive_exit(&d);
}

int main(void)
{
	static struct period ours[PERIODS], authors[PERIODS];
	unsigned int n;

	play(1, ours);
	play(2, authors);
	printf("time_ms capacity predicted used worst_share_off authors_predicted used worst_share_off\n");
	for (n = 0; n < PERIODS; n++)
		printf("%7u %8.0f %9lu %4.0f %14.0f%% %17lu %4.0f %14.0f%%\n", 100 * (n + 1),
		       ours[n].capacity, ours[n].predicted, ours[n].used, 100 * ours[n].worst,
		       authors[n].predicted, authors[n].used, 100 * authors[n].worst);
	return 0;
}
