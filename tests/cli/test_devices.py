"""trainer devices: GPUs of a fake NVML, and the machine's CPU."""
import json
import os
import signal
import subprocess

import pytest

from gpus import Gpus
from trainer import LIMIT_S, TRAINER, environment


def devices(*args, **env):
    return subprocess.run([TRAINER, "devices", *args], env={**environment(), **env}, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S)


@pytest.fixture
def gpus(tmp_path):
    return Gpus(tmp_path, 2)


def test_without_nvml_the_cpu_is_shown():
    shown = devices(BRIM_NVML_LIBRARY="/nowhere.so")
    assert shown.returncode == 0, shown.stderr
    assert "no NVIDIA GPU: NVIDIA's management library is not here (/nowhere.so)" in shown.stdout
    cores = len(os.sched_getaffinity(0))
    assert f"of {cores} cores usable" in shown.stdout
    record = json.loads(devices("--json", BRIM_NVML_LIBRARY="/nowhere.so").stdout)
    assert record["gpus"] == [] and "/nowhere.so" in record["no_gpus_because"]
    assert record["cpu"]["cores"] == cores
    assert 0 < record["cpu"]["memory_free_bytes"] <= record["cpu"]["memory_total_bytes"]


def test_gpus_are_shown(gpus):
    gpus.set(g1_busy=97, g1_temperature=54, g1_power=410_000, g0_handle="error 15")
    shown = devices(**gpus.environment())
    assert shown.returncode == 0, shown.stderr
    assert "GPU 0\n       lost: " in shown.stdout
    assert "GPU 1  NVIDIA Fake  GPU-1aaa-bbb\n" in shown.stdout
    assert "memory: 953.7 MiB used of 74.5 GiB, 73.6 GiB free" in shown.stdout
    assert "something ran 97 % of the time" in shown.stdout
    assert "54 °C, 410 W" in shown.stdout
    record = json.loads(devices("--json", **gpus.environment()).stdout)
    assert record["driver"] == "580.65.06"
    assert [gpu["index"] for gpu in record["gpus"]] == [0, 1]
    assert record["gpus"][0]["trouble"].startswith("lost")
    assert record["gpus"][1]["busy_percent"] == 97
    assert record["gpus"][1]["sm_percent"] is None


def test_counters_are_read_twice(gpus):
    gpus.set(**{"g0_gpm": 1, "g0_gpm.2": 37.5, "g0_gpm.5": 21, "g0_gpm.10": 40})
    gpu = json.loads(devices("--json", **gpus.environment()).stdout)["gpus"][0]
    assert (gpu["sm_percent"], gpu["tensor_percent"], gpu["bandwidth_percent"]) == (37.5, 21, 40)


def test_watch_sees_a_gpu_vanish_and_ends_on_request(gpus):
    env = {**environment(), **gpus.environment()}
    watch = subprocess.Popen([TRAINER, "devices", "--watch", "--every", "0.2", "--json"], env=env,
                             text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        assert json.loads(watch.stdout.readline())["gpus"][1]["trouble"] is None
        gpus.set(g1_handle="error 15")
        while json.loads(watch.stdout.readline())["gpus"][1]["trouble"] is None:
            pass
        watch.send_signal(signal.SIGINT)
        watch.stdout.read()
        assert watch.wait(LIMIT_S) == 0
    finally:
        watch.kill()
        watch.wait()


@pytest.mark.parametrize("every", ["0", "-1", "nan", "1e9"])
def test_an_interval_that_makes_no_sense(every):
    refused = devices("--watch", "--every", every)
    assert refused.returncode == 2
    assert "--every: expected seconds from" in refused.stderr
