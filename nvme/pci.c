// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "pci.h"

#define POWER 0x40
#define MSIX 0x50
#define EXPRESS 0x60

static void put16(u8 *data, u32 offset, u32 value)
{
	data[offset] = (u8)value;
	data[offset + 1] = (u8)(value >> 8);
}

static void put32(u8 *data, u32 offset, u32 value)
{
	put16(data, offset, value);
	put16(data, offset + 2, value >> 16);
}

void pci_init(struct pci *pci)
{
	u8 *c = pci->config, *w = pci->writable;

	memset(pci, 0, sizeof(*pci));
	put16(c, 0x00, NVME_PCI_VENDOR);
	put16(c, 0x02, 1); /* device */
	put16(w, 0x04, 1 << 10 | 1 << 2 | 1 << 1); /* command: no INTx, bus master, memory */
	put16(c, 0x06, 1 << 4); /* status: capabilities */
	put32(c, 0x08, 0x010802 << 8 | 1); /* mass storage, NVM Express; revision 1 */
	put32(c, 0x10, 2 << 1); /* BAR 0 and 1: memory, anywhere in 64 bits */
	put32(w, 0x10, ~(NVME_BAR_BYTES - 1));
	put32(w, 0x14, ~0u);
	put32(w, 0x10 + 4 * PCI_MSIX_BAR, ~(PCI_MSIX_BAR_BYTES - 1u));
	put16(c, 0x2c, NVME_PCI_VENDOR);
	put16(c, 0x2e, 1);
	c[0x34] = POWER;
	w[0x3c] = 0xff; /* interrupt line: the guest's notes */

	c[POWER] = 0x01;
	c[POWER + 1] = MSIX;
	put16(c, POWER + 2, 3); /* version 1.2, no power management events */
	put16(c, POWER + 4, 1 << 3); /* keeps its state in D3hot */
	w[POWER + 4] = 3;

	c[MSIX] = 0x11;
	c[MSIX + 1] = EXPRESS;
	put16(c, MSIX + 2, NVME_VECTORS - 1);
	put16(w, MSIX + 2, 3 << 14); /* enable, mask all */
	put32(c, MSIX + 4, PCI_MSIX_BAR);
	put32(c, MSIX + 8, PCI_MSIX_BAR_BYTES / 2 | PCI_MSIX_BAR);

	c[EXPRESS] = 0x10;
	put16(c, EXPRESS + 2, 2); /* an endpoint, version 2 */
	put32(c, EXPRESS + 4,
	      1 << 28 | 1 << 15); /* function level reset; error reporting by role */
	put16(w, EXPRESS + 8, 0x7fff);
	put32(c, EXPRESS + 12, 4 << 4 | 3); /* link: 4 lanes of 8 GT/s */
	put16(w, EXPRESS + 16, 3);
	put16(c, EXPRESS + 18, 4 << 4 | 3);
}

bool pci_write(struct pci *pci, u32 offset, const u8 *data, u32 bytes)
{
	bool reset = false;
	u32 i;

	for (i = 0; i < bytes; i++) {
		u8 *config = &pci->config[offset + i], writable = pci->writable[offset + i];

		*config = (u8)((*config & ~writable) | (data[i] & writable));
		reset = reset || (offset + i == EXPRESS + 9 && data[i] >> 7);
	}
	return reset;
}
