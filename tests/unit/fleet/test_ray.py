"""Words to a Ray cluster, what its agents see, and what goes wrong in a line each."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from rocm_tui.errors import UsageError
from rocm_tui.fleet.opening import open_fleet
from rocm_tui.fleet.protocol import NoFleet, Site
from rocm_tui.fleet.ray.actor import agent_env
from rocm_tui.fleet.ray.fleet import RayPlace, ray_place
from tests.support.places import ROOT


@pytest.mark.parametrize(
    ("words", "scheme", "place"),
    [
        ("", "", RayPlace("local", 1)),
        ("?cpus=4", "", RayPlace("local", 4)),
        ("auto", "", RayPlace("auto", 0)),
        ("auto?cpus=2", "", RayPlace("auto", 2)),
        ("head:6379", "", RayPlace("head:6379", 0)),
        ("[fe80::1]:6379", "", RayPlace("[fe80::1]:6379", 0)),
        ("head:10001?cpus=1", "ray://", RayPlace("ray://head:10001", 1)),
    ],
)
def test_words_name_a_cluster(words: str, scheme: str, place: RayPlace) -> None:
    assert ray_place(words, scheme) == place


@pytest.mark.parametrize(
    "words",
    [
        *(f"ray:{at}" for at in ("head", "auto?gpus=2", "?cpus=-1", "?cpus=x", ":6379", "h:x")),
        *("ray://?cpus=-1", "ray://?cpus=x"),
    ],
)
def test_other_words_are_refused(words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no cluster; give ray"):
        open_fleet([words], Site(tmp_path, "run"))


@pytest.mark.parametrize("words", ["ray://auto", "ray://", "ray://?cpus=1"])
def test_a_client_server_has_an_address(words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ray://HOST:10001"):
        open_fleet([words], Site(tmp_path, "run"))


@pytest.mark.skipif(find_spec("grpc") is not None, reason="Ray's client is installed")
def test_without_rays_client_a_line_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(NoFleet) as error:
        open_fleet(["ray://127.0.0.1:10001"], Site(tmp_path, "run"))
    assert str(error.value).endswith("pip install 'ray[client]'") and "\n" not in str(error.value)


def test_an_agent_sees_its_gpu_by_either_variable() -> None:
    env = {"HIP_VISIBLE_DEVICES": "0,1,2,3", "CUDA_VISIBLE_DEVICES": "7", "PATH": "/bin"}
    seen = agent_env(env, "2")
    assert (seen["HIP_VISIBLE_DEVICES"], seen["CUDA_VISIBLE_DEVICES"]) == ("2", "2")
    assert seen["PATH"] == "/bin"


def test_an_agent_on_a_cpu_sees_the_gpus_that_its_node_does() -> None:
    """Their names are part of the name of PyTorch's cache file."""
    assert "HIP_VISIBLE_DEVICES" not in agent_env({}, None)
    assert agent_env({"HIP_VISIBLE_DEVICES": "0,1"}, None)["HIP_VISIBLE_DEVICES"] == "0,1"


def test_an_agent_finds_our_packages_first() -> None:
    path = agent_env({"PYTHONPATH": "/theirs"}, None)["PYTHONPATH"].split(os.pathsep)
    assert path[0] == str(ROOT) and path[-1] == "/theirs"


REFUSALS = """
import os, sys
from ray._private.accelerators.amd_gpu import AMDGPUAcceleratorManager as amd
from ray._private.utils import check_version_info
from rocm_tui.fleet.ray.cluster import refusal, why_gone

def said(address, function, *words):
    try:
        function(*words)
    except Exception as error:
        print(refusal(address, error))

os.environ["ROCR_VISIBLE_DEVICES"] = "0"
os.environ.pop("HIP_VISIBLE_DEVICES", None)
said("local", amd.get_visible_accelerator_ids_env_var)
said("head:6379", check_version_info, {"ray_version": "2.1.0", "python_version": "3.9.1"}, "here")
print(why_gone("creation failed\\nModuleNotFoundError: No module named 'torch'\\n"))
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


def test_without_ray_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocm_tui.fleet.ray.fleet.find_spec", lambda name: None)
    with pytest.raises(NoFleet, match=r"rocm-tui\[fleet\]"):
        open_fleet(["ray"], Site(tmp_path, "run"))
