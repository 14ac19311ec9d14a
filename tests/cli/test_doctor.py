"""trainer doctor without a run: the environment check on this machine, and with made-up GPUs."""
import json

import pytest

from gpus import Gpus
from trainer import trainer


def doctor(*args, **env):
    return trainer("doctor", *args, **env)


def checks(result):
    return {check["name"]: check for check in json.loads(result.stdout)["checks"]}


def test_text_and_json_tell_the_same():
    text, found = doctor(), doctor("--json")
    assert text.returncode == found.returncode, (text.stdout, found.stdout)
    failed = [name for name, check in checks(found).items() if check["health"] == "fail"]
    assert found.returncode == (5 if failed else 0)
    for name, check in checks(found).items():
        assert f"{check['health']}  {name}" in text.stdout or name in ("cpu load", "container", "disk")
        assert (check["advice"] is None) == (check["health"] == "pass")
    assert checks(found)["libtorch"]["found"].startswith("2.11")


def test_the_cpu_trains_as_it_should():
    cpu = checks(doctor("--json"))["self-test cpu"]
    assert cpu["health"] == "pass" and cpu["found"].startswith("10 steps in fp32: ")


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Gpus(tmp_path, 2)


def test_a_lost_gpu_fails(gpus):
    gpus.set(g1_handle="error 15")
    found = doctor("--json", **gpus.environment())
    assert found.returncode == 5
    assert checks(found)["gpu health"]["health"] == "fail"
    assert "GPU 1: lost" in checks(found)["gpu health"]["found"]
    assert checks(found)["driver"]["found"] == "580.65.06, serves CUDA up to 13.0"


def test_warnings_say_what_to_do(gpus):
    gpus.set(g0_persistence=0, g1_pcie_width=4, g1_max_pcie_width=16)
    found = checks(doctor("--json", **gpus.environment(CUDA_VISIBLE_DEVICES="1,5")))
    for name, words in {"persistence mode": "nvidia-smi -pm 1", "pcie": "reseat",
                        "visible devices": "correct the list"}.items():
        assert found[name]["health"] == "warn"
        assert words in found[name]["advice"]


def test_a_stray_word_is_refused():
    assert doctor("--jsno").returncode == 2
