# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# make setup     the tools this needs (Debian packages) and .venv with the command in it
# make demo      boot Linux, load our scheduler, compare it with every other one
# make test      all tests but the long ones; test-unit, test-sim, test-python and test-vm are its parts
# make modules   the kernel modules, for the kernels that make test boots, without running anything
# make deb      Debian packages, in build/deb; SUFFIX=+1 is appended to their version
# make lint      what is checked without running it: style, types, and who imports whom
# make help      this list
# make clean     remove what was built here (the kernel cache stays)

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/.ready

# Of these names on Debian 12 and 13. A kernel's modules are built with the gcc of its Debian: this machine's, or one that is
# fetched with the kernel.
APT := fio qemu-system-x86 busybox-static file kmod mount e2fsprogs gcc make flex bison bc xz-utils libelf-dev pahole libc6-dev libjansson-dev

.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup demo test test-unit test-sim test-python test-vm sim modules deb lint clean

setup: $(READY)

# The editable install points at this folder, so only a change of pyproject.toml asks for another.
$(READY): pyproject.toml
	@missing=$$(for p in $(APT); do \
		dpkg-query -W -f='$${db:Status-Status}\n' $$p 2>/dev/null | grep -qx installed || echo $$p; done); \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	set -- $$missing; [ $$# -eq 0 ] && exit 0; \
	command -v apt-get >/dev/null || { echo "setup: no apt-get here; install these yourself: $$*" >&2; exit 1; }; \
	sudo=; [ $$(id -u) -eq 0 ] || sudo=sudo; \
	echo "setup: installing Debian packages: $$*"; \
	install() { $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$$@"; }; \
	install "$$@" || { $$sudo apt-get -q update && install "$$@"; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "setup: Python 3.11 or newer is needed, $(PYTHON) is older; set PYTHON=..." >&2; exit 1; }
	@# What is wrong with a kernel is told by who needs it: it tries again.
	@kernels=; $(if $(AHEAD),$(PYTHON) -m fairlane.vm.kernels $(AHEAD) >/dev/null & kernels=$$!;) \
	echo "setup: making $(VENV)"; \
	$(PYTHON) -m venv $(VENV) && $(BIN)/pip install -q --disable-pip-version-check -e '.[test]' || \
		{ [ -z "$$kernels" ] || kill $$kernels; exit 1; }; \
	[ -z "$$kernels" ] || wait $$kernels || :
	@touch $@

help:
	@sed -n "s/^# make /  make /p" Makefile

# Kernels that are fetched, and modules that are built for them, while .venv is made.
demo: AHEAD := own
test test-vm: AHEAD := booted

demo: $(READY)
	$(BIN)/fairlane demo

modules: $(READY)
	$(BIN)/python -m fairlane.vm.kernels

# Newer commits have higher versions. SUFFIX= leaves that out.
deb: SUFFIX ?= +git$(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y%m%d).$(shell git rev-list --count HEAD)

# Of what git knows of this folder. `apt-get build-dep ./packaging` installs what it takes.
deb:
	rm -rf build/deb
	mkdir -p build/deb/source
	git ls-files -z | tar -c --null -T - | tar -x -C build/deb/source
	mv build/deb/source/packaging/debian build/deb/source
	sed -i '1s/)/$(SUFFIX))/' build/deb/source/debian/changelog
	@# With the distribution's own Python and tools.
	cd build/deb/source && PATH=/usr/sbin:/usr/bin:/sbin:/bin dpkg-buildpackage -b -us -uc
	rm -rf build/deb/source

# On both of two CPUs; a file's tests on one of them, as they share what they made.
BOTH := -n 2 --dist loadfile

# Quick parts first. The simulator's and Python's tests take both CPUs; so do VMs, by themselves.
test: test-unit sim
	$(BIN)/pytest $(BOTH) tests/ssd tests/sim tests/python
	$(BIN)/pytest tests/vm

test-unit: $(READY)
	$(MAKE) -j2 -O -C tests/unit check
	$(MAKE) -j2 -O -C tests/ssd check drive
	$(MAKE) -j2 -O -C tests/nvme check

test-sim: $(READY) sim
	$(BIN)/pytest $(BOTH) tests/ssd tests/sim

test-python: $(READY) sim
	$(BIN)/pytest $(BOTH) tests/python

# Before tests that would each build it.
sim:
	$(MAKE) -s -j2 -C sim all asan

test-vm: $(READY)
	$(BIN)/pytest tests/vm

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

clean:
	rm -rf build out .mypy_cache .ruff_cache .pytest_cache .hypothesis
	$(MAKE) -C tests/unit clean
	$(MAKE) -C tests/ssd clean
	$(MAKE) -C tests/nvme clean
