# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The build of the modules looks at what the kernel's headers have, and refuses another kernel's block headers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fairlane.places import ROOT

# As little of the headers as there must be for each test of features.sh to be able to compile.
LINUX = """
struct mutex { int x; }; typedef unsigned gfp_t; struct blkcg; struct gendisk; struct lock_class_key;
struct blk_mq_tag_set; struct rq_qos_ops { int x; }; struct device; struct class_interface;
struct request_queue; struct elevator_queue; struct elevator_type;
struct blk_mq_hw_ctx; struct blk_mq_ctx; struct hrtimer;
enum hrtimer_restart { HRTIMER_NORESTART }; enum { HRTIMER_MODE_ABS }; typedef unsigned blk_opf_t;
"""
OLD = """
struct request_queue { int x; }; struct rq_qos { struct request_queue *q; struct rq_qos_ops *ops; };
struct class_interface { int (*add_dev)(struct device *, struct class_interface *); };
struct blkcg_policy; struct blkg_policy_data; struct blkg_conf_ctx;
typedef struct blkg_policy_data *(blkcg_pol_alloc_pd_fn)(gfp_t, struct request_queue *, struct blkcg *);
int blkcg_activate_policy(struct request_queue *, const struct blkcg_policy *);
struct elevator_mq_ops { int (*init_sched)(struct request_queue *, struct elevator_type *); };
struct blk_mq_hw_ctx *blk_mq_map_queue(struct request_queue *, blk_opf_t, struct blk_mq_ctx *);
void blk_mq_freeze_queue(struct request_queue *); enum { BLK_MQ_F_SHOULD_MERGE = 1 };
"""
NEW = """
struct request_queue { struct mutex rq_qos_mutex; struct mutex elevator_lock; };
struct class_interface { int (*add_dev)(struct device *); };
struct rq_qos { struct gendisk *disk; const struct rq_qos_ops *ops; }; typedef unsigned blk_insert_t;
struct blkcg_policy; struct blkg_policy_data; struct blkg_conf_ctx; struct queue_limits;
typedef struct blkg_policy_data *(blkcg_pol_alloc_pd_fn)(struct gendisk *, struct blkcg *, gfp_t);
int blkcg_activate_policy(struct gendisk *, const struct blkcg_policy *);
void blkg_conf_init(struct blkg_conf_ctx *, char *);
void wbt_disable_default(struct gendisk *);
struct gendisk *__blk_mq_alloc_disk(struct blk_mq_tag_set *, struct queue_limits *, void *, struct lock_class_key *);
void blkg_conf_close_bdev(struct blkg_conf_ctx *); enum { QUEUE_FLAG_QOS_ENABLED, QUEUE_FLAG_DISABLE_WBT_DEF };
struct elevator_mq_ops { int (*init_sched)(struct request_queue *, struct elevator_queue *); };
struct blk_mq_hw_ctx *blk_mq_map_queue(blk_opf_t, struct blk_mq_ctx *);
unsigned int blk_mq_freeze_queue(struct request_queue *);
void hrtimer_setup(struct hrtimer *, enum hrtimer_restart (*)(struct hrtimer *), int, int);
"""
WITHOUT_MUTEX = NEW.replace("struct mutex rq_qos_mutex;", "int x;")


def features(folder: Path, block: str) -> subprocess.CompletedProcess[str]:
    (folder / "linux").mkdir()
    (folder / "linux/blkdev.h").write_text(LINUX)
    for name in (
        "linux/blk-mq.h",
        "linux/hrtimer.h",
        "elevator.h",
        "blk-cgroup.h",
        "blk-mq.h",
        "blk-rq-qos.h",
        "blk-wbt.h",
    ):
        (folder / name).write_text("")
    (folder / "blk.h").write_text(block)
    argv = ["sh", str(ROOT / "kernel/features.sh"), "cc", "-std=gnu11", "-nostdinc", f"-I{folder}"]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)


def found(folder: Path, block: str) -> set[str]:
    done = features(folder, block)
    assert done.returncode == 0, done.stderr
    return {line.removeprefix("#define FL_HAVE_") for line in done.stdout.splitlines() if line.startswith("#")}


ALL = {
    *("BLK_INSERT_T", "PD_ALLOC_DISK", "POLICY_OF_DISK", "CONF_INIT"),
    *("RQOS_CONST_OPS", "RQOS_DISK", "RQOS_MUTEX", "WBT_DISK", "DISK_WITH_LIMITS"),
    *("CONF_OPEN_BDEV", "RQOS_FLAG", "WBT_FLAG_OF_QUEUE", "ELEVATOR_LOCK", "INIT_SCHED_ALLOCATED"),
    *("MAP_QUEUE_OF_CTX", "FREEZE_FLAGS", "HRTIMER_SETUP"),
}


@pytest.mark.parametrize(
    ("block", "has"),
    [(OLD, {"CLASS_INTERFACE_ARG", "F_SHOULD_MERGE"}), (NEW, ALL), (WITHOUT_MUTEX, ALL - {"RQOS_MUTEX"})],
)
def test_a_build_asks_the_headers_and_not_the_version(tmp_path: Path, block: str, has: set[str]) -> None:
    assert found(tmp_path, block) == has


def test_block_headers_that_do_not_go_with_the_kernel_are_refused(tmp_path: Path) -> None:
    done = features(tmp_path, "struct mutex again_otherwise(void); struct gendisk { undeclared_t x; };")
    assert done.returncode == 1
    assert "the block headers in BLOCK are not those of the kernel in KDIR" in done.stderr.splitlines()[-1]


def build_said(folder: Path, *options: str, sublevel: int | None) -> str:
    """By a build for Linux 6.1.192 with block headers of 6.1.SUBLEVEL, as a Makefile says; None: it has none."""
    headers, source = folder / "headers", folder / "source"
    for path in (headers / "include/generated/uapi/linux", source / "block"):
        path.mkdir(parents=True, exist_ok=True)
    (headers / "include/generated/uapi/linux/version.h").write_text(
        "#define LINUX_VERSION_CODE 393392\n#define LINUX_VERSION_MAJOR 6\n"
        "#define LINUX_VERSION_PATCHLEVEL 1\n#define LINUX_VERSION_SUBLEVEL 192\n"
    )
    (source / "Makefile").unlink(missing_ok=True)
    if sublevel is not None:
        (source / "Makefile").write_text(f"VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = {sublevel}\nEXTRAVERSION =\n")
    argv = ["make", "-n", "-C", str(ROOT / "kernel"), f"KDIR={headers}", f"BLOCK={source}/block", f"OUT={folder}"]
    return subprocess.run([*argv, *options], check=False, capture_output=True, text=True, timeout=60).stderr


OTHER = "BLOCK is of Linux 6.1.176 and KDIR of Linux 6.1.192"
UNKNOWN = "BLOCK has no Makefile beside it"


def test_block_headers_of_another_version_are_refused(tmp_path: Path) -> None:
    assert OTHER in build_said(tmp_path, sublevel=176)
    assert "BLOCK" not in build_said(tmp_path, sublevel=192)


def test_block_headers_of_no_known_version_are_refused_unless_somebody_says_it(tmp_path: Path) -> None:
    said = build_said(tmp_path, sublevel=None)
    assert UNKNOWN in said and "set BLOCK_VERSION=6.1.192" in said
    assert "BLOCK" not in build_said(tmp_path, "BLOCK_VERSION=6.1.192", sublevel=None)
    assert OTHER in build_said(tmp_path, "BLOCK_VERSION=6.1.176", sublevel=None)
    assert OTHER in build_said(tmp_path, "BLOCK_VERSION=6.1.192", sublevel=176), "what its own Makefile says counts"
