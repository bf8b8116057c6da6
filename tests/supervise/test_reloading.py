"""The config file while it is in use, as editors and Kubernetes change it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from headwater.commands.options import Options
from headwater.supervise.reloading import Reloading

CONFIG = """
source: postgresql://app@db/shop
log: ./log
lakes:
  main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}
groups:
  shop: {{flush: {{interval: {interval}}}, tables: [public.orders]}}
"""


def mounted(folder: Path, number: int) -> None:
    """Put a version of the config in place as the kubelet does: a folder of its own, and a link that leads there."""
    (folder / f"..{number}").mkdir()
    (folder / f"..{number}" / "headwater.yaml").write_text(CONFIG.format(interval=f"{number}s"))
    (folder / "..new").symlink_to(f"..{number}")
    os.replace(folder / "..new", folder / "..data")
    shutil.rmtree(folder / f"..{number - 1}", ignore_errors=True)


def test_a_config_that_kubernetes_mounts_is_taken_up_when_it_changes(tmp_path: Path) -> None:
    mounted(tmp_path, 1)
    file = tmp_path / "headwater.yaml"
    file.symlink_to("..data/headwater.yaml")
    reload = Reloading(Options(file=file).path, {})
    assert reload() is None
    mounted(tmp_path, 2)
    config = reload()
    assert config is not None
    assert config.groups["shop"].flush.interval.total_seconds() == 2
    assert reload() is None


def test_a_config_that_cannot_be_used_leaves_the_old_one_in_force(tmp_path: Path) -> None:
    file = tmp_path / "headwater.yaml"
    file.write_text(CONFIG.format(interval="1s"))
    reload = Reloading(file, {})
    file.write_text("nonsense")
    assert reload() is None
    file.write_text(CONFIG.format(interval="30s"))
    assert reload() is not None
