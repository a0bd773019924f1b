# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The wheel carries all that simulating needs: in an empty environment, outside of the project, it finds the same."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # which Dask brings

from fairlane import __version__, cli, schedulers
from fairlane.backends import program
from fairlane.places import ROOT, SCENARIOS

LIMIT_S = 900
KUBERNETES = ROOT / "packaging" / "kubernetes"
OPERATOR = "dask-kubernetes==2026.3.0"
CRD = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds/daskcluster.yaml"


def ran(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Without what this environment has: only the system's own programs, and not make or a compiler of a user's."""
    words = [str(word) for word in argv]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.mark.long
def test_an_installed_wheel_simulates_as_the_checkout_does(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels), str(ROOT)]
    subprocess.run(build, cwd=tmp_path, timeout=LIMIT_S, check=True)
    [wheel] = wheels.iterdir()
    assert wheel.name.startswith("fairlane-") and "-py3-none-linux_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if "/carried/kernel/" in name] == ["fairlane/carried/kernel/vssd/vssd.h"]

    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], timeout=LIMIT_S, check=True)
    subprocess.run([venv / "bin" / "pip", "install", "-q", str(wheel)], cwd=tmp_path, timeout=LIMIT_S, check=True)
    text = (SCENARIOS / "demo.toml").read_text()
    short = re.sub(r"(?m)^(seconds|warmup) = .*", r"\1 = 0.1", text)
    (tmp_path / "mine.toml").write_text(short)
    fairlane = venv / "bin" / "fairlane"
    done = ran(fairlane, "run", "mine.toml", "--on", "sim", "--out", "there", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert cli.main(["run", str(tmp_path / "mine.toml"), "--on", "sim", "--out", str(tmp_path / "here")]) == 0
    found = sorted((tmp_path / "here" / "sim").glob("*.found.json"))
    assert len(found) > 3
    for file in found:
        assert (tmp_path / "there" / "sim" / file.name).read_bytes() == file.read_bytes()

    code = "from fairlane.backends import program; print(program.identity())"
    assert ran(venv / "bin" / "python", "-c", code, cwd=tmp_path).stdout.strip() == program.identity()
    for words in (["demo"], ["bench", "--on", "vm"]):
        done = ran(fairlane, *words, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "nothing for VMs; use a checkout of the project" in done.stderr


def test_the_manifest_is_a_cluster_whose_scheduler_and_workers_have_the_same_wheel() -> None:
    manifest = yaml.safe_load((KUBERNETES / "dask-cluster.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    spec = manifest["spec"]
    [worker], [scheduler] = (spec[part]["spec"]["containers"] for part in ("worker", "scheduler"))
    assert worker["image"] == scheduler["image"] == f"registry.example/fairlane:{__version__}"
    assert worker["args"][:2] == ["dask", "worker"] and scheduler["args"] == ["dask", "scheduler"]
    ports = {port["name"] for port in scheduler["ports"]}
    assert {port["targetPort"] for port in spec["scheduler"]["service"]["ports"]} == ports
    assert scheduler["readinessProbe"]["httpGet"]["port"] in ports


def strict(schema: Any) -> None:
    """Kubernetes drops a field that it does not know, without a word. Here none may be."""
    if isinstance(schema, dict):
        if schema.get("x-kubernetes-int-or-string"):
            schema.pop("type", None)
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        strict(each)


@pytest.mark.long
def test_the_manifest_is_what_the_operators_own_schema_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tmp_path)]
    subprocess.run([*pip, "--no-deps", OPERATOR], timeout=LIMIT_S, check=True)
    subprocess.run([*pip, "jsonschema"], timeout=LIMIT_S, check=True)
    monkeypatch.syspath_prepend(tmp_path)
    [version] = yaml.safe_load((tmp_path / CRD).read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    strict(schema["properties"]["spec"])
    validator = importlib.import_module("jsonschema").Draft7Validator(schema)
    manifest = yaml.safe_load((KUBERNETES / "dask-cluster.yaml").read_text())
    assert [error.message for error in validator.iter_errors(manifest)] == []
    manifest["spec"]["worker"]["spec"]["containers"][0]["arg"] = ["dask"]
    assert [error.message for error in validator.iter_errors(manifest)], "a word that it does not know is found"


def test_whoever_simulates_is_known_by_the_version_and_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    before = program.identity()
    assert before == program.identity()
    monkeypatch.setattr(schedulers, "code", lambda: {"mqfq": "another"})
    assert program.identity() != before
