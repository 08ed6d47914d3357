"""`--fleet ray` on a real cluster of this machine, whose nodes believe to have GPUs; the workers of
its tasks are processes that wait instead of computing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from rocm_tui.cli import main
from rocm_tui.errors import UsageError
from rocm_tui.fleet import cluster as cluster_module
from rocm_tui.fleet.cluster import Cluster, ray_address
from rocm_tui.fleet.facts import FleetOptions, NoTuningDevice
from rocm_tui.fleet.node import node_env
from tests.support.fleet_lab import assert_right, kept, run, wait_until, waiting_units
from tests.support.places import ROOT
from tests.support.ray_lab import add_node, ray_cluster
from tests.support.waiting_workers import alive, ended, log_of


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes with eight GPUs each; one that a test kills is replaced."""
    pytest.importorskip("ray")
    with ray_cluster(3, 8) as cluster:
        yield cluster


def busy_node(cluster: Any, folder: Path) -> Any:
    """A node, not the head, with results in the cache and work before it; None without one."""
    entries, over = log_of(folder), set(kept(folder))
    for node in cluster.list_all_nodes():
        [raylet] = node.all_processes["raylet"]
        below = {child.pid for child in psutil.Process(raylet.process.pid).children(recursive=True)}
        here = {entry["inputs"] for entry in entries if entry["pid"] in below}
        if node is not cluster.head_node and here & over and here - over:
            return node
    return None


def test_no_result_is_lost_with_a_node_that_is_killed(cluster: Any, tmp_path: Path) -> None:
    """48 problems on 24 GPUs. A node that has results behind it and work before it is killed: Ray
    runs its tasks elsewhere, and each problem is merged once, with one worker's times."""
    units = waiting_units(48, 3.0)
    killed: list[set[str]] = []

    def kill_a_node() -> None:
        nodes: list[Any] = []
        wait_until(lambda: nodes.append(busy_node(cluster, tmp_path)) or nodes[-1])
        cluster.remove_node(nodes[-1], allow_graceful=False)
        killed.append(set(ended(tmp_path)))

    killer = threading.Thread(target=kill_a_node)
    killer.start()
    results = run(tmp_path, cluster.address, units)
    killer.join()
    assert killed and len(killed[0]) < 48
    add_node(cluster, 8)
    assert results.count("merged") == 48, [u.reasons for u in results.units.values() if u.reasons]
    assert len(kept(tmp_path)) == 48
    assert_right(kept(tmp_path))
    assert all(len(unit.results) == 1 for unit in results.units.values())
    assert len({name.rpartition(":")[0] for name in results.devices}) == 3
    again = [key for key in killed[0] if ended(tmp_path).count(key) > 1]
    assert len(again) <= 8, "only what was on its way from the node that died"
    wait_until(lambda: not alive(tmp_path))


def test_variables_that_ray_sets_are_gone_after_a_run(cluster: Any, tmp_path: Path) -> None:
    before = dict(os.environ)
    results = run(tmp_path, cluster.address, waiting_units(1, 0.05))
    assert results.count("merged") == 1 and dict(os.environ) == before


def test_a_worker_that_dies_is_tried_again_and_each_has_its_gpu(
    cluster: Any, tmp_path: Path
) -> None:
    (tmp_path / "dies-3").touch()
    results = run(tmp_path, cluster.address, waiting_units(24, 1.0), FleetOptions(repeat=1))
    assert results.count("merged") == 24
    three = [entry["what"] for entry in log_of(tmp_path) if entry["inputs"] == "[3]"]
    assert three == ["begins", "begins", "ends"]
    assert {entry["gpu"] for entry in log_of(tmp_path)} <= set(map(str, range(8)))
    assert_right(kept(tmp_path))


def test_the_results_of_a_driver_that_is_killed_stay_and_nothing_goes_on(
    cluster: Any, tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "tests.support.fleet_lab", tmp_path, cluster.address, "40", "1"]
    driver = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(kept(tmp_path)) >= 3)
    driver.kill()
    driver.wait()
    wait_until(lambda: not alive(tmp_path))
    before = set(kept(tmp_path))
    assert_right(kept(tmp_path))
    lines = len(log_of(tmp_path))
    results = run(tmp_path, cluster.address, waiting_units(40, 0.05), FleetOptions(missing=True))
    assert (results.count("skipped"), results.count("merged")) == (len(before), 40 - len(before))
    assert not before & {entry["inputs"] for entry in log_of(tmp_path)[lines:]}
    assert len(kept(tmp_path)) == 40


def test_with_repeat_several_devices_tune_each(cluster: Any, tmp_path: Path) -> None:
    results = run(tmp_path, cluster.address, waiting_units(2, 1.0), FleetOptions(repeat=3))
    assert len(ended(tmp_path)) == 6
    for unit in results.units.values():
        assert unit.winner == "mm-1" and unit.holds == unit.of == len(unit.results) > 1


def test_nodes_of_another_class_get_no_task(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAITING_COMPUTE_UNITS", "80")
    node = add_node(cluster, 8)
    monkeypatch.delenv("WAITING_COMPUTE_UNITS")
    try:
        lines: list[str] = []
        wanted = FleetOptions(tell=lines.append)
        results = run(tmp_path, cluster.address, waiting_units(40, 0.3), wanted)
        assert results.chosen.device_class == "gfx942, 304 CUs" and results.count("merged") == 40
        [line], [name] = lines, results.refused
        assert f"{name} gets no work" in line and "80 CUs" in line
        assert not any(device.startswith(f"{name}:") for device in results.devices)
        with pytest.raises(NoTuningDevice, match="there are gfx942, 304 CUs; gfx942, 80 CUs"):
            run(
                tmp_path,
                cluster.address,
                waiting_units(1, 0.1),
                FleetOptions(device_class="96 CUs"),
            )
    finally:
        cluster.remove_node(node)


@pytest.mark.parametrize(
    ("word", "address"),
    [
        ("ray", "local"),
        ("ray:auto", "auto"),
        ("ray:head:6379", "head:6379"),
        ("ray:[fe80::1]:6379", "[fe80::1]:6379"),
        ("ray://head:10001", "ray://head:10001"),
    ],
)
def test_words_name_a_cluster(word: str, address: str) -> None:
    assert ray_address(word) == address


@pytest.mark.parametrize(
    "word", ["ray:head", "ray:auto?cpus=2", "ray::6379", "ray:h:x", "ray://", "ray://auto"]
)
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match="is no cluster; write ray"):
        ray_address(word)


def test_what_cannot_be_asked_for_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", "mm", "8x8", "8x8", "--dtype", "f32"]
    for more, why in (
        (("--fleet", "ssh://box"), "Ray cluster"),
        (("--fleet", "ray", "--fleet", "local"), "one --fleet"),
        (("--fleet", "ray", "--compile-only", "gfx942"), "local:cpu:N"),
        (("--missing",), "--missing goes with --fleet"),
    ):
        assert main([*words, *more]) == 2
        error = capsys.readouterr().err
        assert why in error and error.count("\n") == 1


def test_a_cluster_that_does_not_answer_is_a_line() -> None:
    pytest.importorskip("ray")
    with pytest.raises(NoTuningDevice, match=r"nothing answers at 127\.0\.0\.1:1 "):
        Cluster("127.0.0.1:1")


def test_without_ray_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "find_spec", lambda name: None)
    with pytest.raises(NoTuningDevice, match="pip install 'ray>=2"):
        Cluster("local")


@pytest.mark.skipif(find_spec("grpc") is not None, reason="Ray's client is installed")
def test_without_rays_client_a_line_says_what_to_install() -> None:
    pytest.importorskip("ray")
    with pytest.raises(NoTuningDevice) as error:
        Cluster("ray://127.0.0.1:10001")
    assert str(error.value).endswith("pip install 'ray[client]'") and "\n" not in str(error.value)


def test_a_worker_sees_its_gpu_by_either_variable() -> None:
    env = {"HIP_VISIBLE_DEVICES": "0,1,2,3", "CUDA_VISIBLE_DEVICES": "7", "PATH": "/bin"}
    seen = node_env(env, "2")
    assert (seen["HIP_VISIBLE_DEVICES"], seen["CUDA_VISIBLE_DEVICES"]) == ("2", "2")
    assert seen["PATH"] == "/bin"


def test_a_worker_on_a_cpu_sees_the_gpus_that_its_node_does() -> None:
    """Their names are part of the name of PyTorch's cache file."""
    assert "HIP_VISIBLE_DEVICES" not in node_env({}, None)
    assert node_env({"HIP_VISIBLE_DEVICES": "0,1"}, None)["HIP_VISIBLE_DEVICES"] == "0,1"


REFUSALS = """
import os, sys
from ray._private.accelerators.amd_gpu import AMDGPUAcceleratorManager as amd
from ray._private.utils import check_version_info
from rocm_tui.fleet.cluster import why_lost, why_no_cluster

def said(address, function, *words):
    try:
        function(*words)
    except Exception as error:
        print(why_no_cluster(address, error))

os.environ["ROCR_VISIBLE_DEVICES"] = "0"
os.environ.pop("HIP_VISIBLE_DEVICES", None)
said("local", amd.get_visible_accelerator_ids_env_var)
said("head:6379", check_version_info, {"ray_version": "2.1.0", "python_version": "3.9.1"}, "here")
print(why_lost("creation failed\\nModuleNotFoundError: No module named 'torch'\\n"))
"""


def test_what_ray_raises_becomes_a_line() -> None:
    """As this version of Ray raises it."""
    pytest.importorskip("ray")
    done = subprocess.run(
        [sys.executable, "-c", REFUSALS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rocr, version, module = done.stdout.splitlines()
    assert module == "No module named 'torch' on that node; install it there"
    assert rocr.endswith("set that, and unset ROCR_VISIBLE_DEVICES")
    assert version.startswith("the cluster has another version") and "2.1.0" in version
