// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * How the predicted total follows the drive: four tenants, weights
 * 1000:500:250:100; the drive halves its speed after 1 s and doubles it after
 * 2 s. A line each period: what the drive can do, what is predicted, and what
 * the tenants got of it.
 */
#include <stdio.h>

#include "drive.h"

int main(void)
{
	static const u32 weights[] = { 1000, 500, 250, 100 };
	static struct drive d;
	struct tenant *t[4];
	unsigned int i, period;

	drive_init(&d, &fl_kyber_fairness, 2, 32, 4 * MSEC);
	for (i = 0; i < 4; i++)
		t[i] = drive_tenant(&d, NULL, weights[i], 64);
	drive_start(&d);
	printf("time_ms capacity predicted used share_1000 share_500 share_250 share_100\n");
	for (period = 0; period < 30; period++) {
		d.read_ns = period >= 10 && period < 20 ? 8 * MSEC : 4 * MSEC;
		drive_mark(&d);
		drive_run(&d, 100 * MSEC);
		printf("%7u %8.0f %9lu %4.0f", 100 * (period + 1), drive_capacity(&d) / 10,
		       drive_var(&d, "predicted_total") / FL_COST_ONE, drive_iops(&d) / 10);
		for (i = 0; i < 4; i++)
			printf(" %9.3f", drive_share(&d, t[i]));
		printf("\n");
	}
	drive_exit(&d);
	return 0;
}
