/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The configuration space of an NVMe controller's PCI function: two BARs, and
 * capabilities for power management, MSI-X and PCI Express.
 */
#ifndef FAIRLANE_NVME_PCI_H
#define FAIRLANE_NVME_PCI_H

#include "controller.h"

#define PCI_CONFIG_BYTES 4096
#define PCI_MSIX_BAR 2 /* the first, 64 bits wide, has the registers and takes two places */
#define PCI_MSIX_BAR_BYTES 0x2000 /* the table, and from the middle on the pending bits */

struct pci {
	u8 config[PCI_CONFIG_BYTES];
	u8 writable[PCI_CONFIG_BYTES]; /* a bit for each of config's */
};

/* As after power-on. */
void pci_init(struct pci *pci);
/* Within the space. Returns true when the guest asks for the function's reset. */
bool pci_write(struct pci *pci, u32 offset, const u8 *data, u32 bytes);

#endif
