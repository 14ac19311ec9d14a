"""trainer devices: GPUs of a fake NVML, and the machine's CPU."""
import json
import os
import signal
import subprocess

import pytest

from gpus import Gpus
from trainer import DIGITS, LIMIT_S, TRAINER, environment, trainer


def devices(*args, **env):
    return trainer("devices", *args, **env)


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("BRIM_GPU_LOCK_FOLDER", str(tmp_path / "claims"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
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
    assert refused.stderr.startswith("error[usage]: ")


@pytest.mark.parametrize("args, more, visible", [
    (["--devices", "auto"], {}, "GPU-1aaa-bbb"),
    (["--devices", "0,1"], {}, "GPU-0aaa-bbb,GPU-1aaa-bbb"),
    (["--devices", "0"], {"CUDA_VISIBLE_DEVICES": "GPU-1"}, "GPU-1aaa-bbb"),
    (["--recipe", DIGITS, "--set", "device.idle_utilisation=1"], {"CUDA_VISIBLE_DEVICES": "0"}, "GPU-0aaa-bbb"),
    (["--recipe", DIGITS], {"CUDA_VISIBLE_DEVICES": ""}, ""),
])
def test_what_a_run_would_take(args, more, visible, gpus):
    gpus.set(g0_busy=50)
    shown = devices(*args, "--json", **gpus.environment(**more))
    assert shown.returncode == 0, shown.stderr
    choice = json.loads(shown.stdout)["choice"]
    assert choice["cuda_visible_devices"] == visible
    assert choice["on_cpu"] == (visible == "")


def dry_run(folder, gpus, *args):
    """Of a run that would train: no CUDA is needed up to the choice."""
    return trainer("--recipe", DIGITS, "--output", folder / "run", "--dry-run", *args, **gpus.environment())


@pytest.mark.parametrize("devices, status, words", [
    ("2", 2, "device '2' is not there: this process sees 2 GPUs"),
    ("0,0", 2, "found '0' twice"),
    ("0, 1", 2, "found ' 1'"),
    ("0,GPU-0", 2, "is there twice"),
    ("both", 2, "found 'both'"),
    ("1", 5, "GPU 1: lost: "),
])
def test_a_list_that_cannot_be_had(devices, status, words, gpus, tmp_path):
    gpus.set(g1_handle="error 15")
    refused = dry_run(tmp_path, gpus, "--devices", devices)
    assert refused.returncode == status, refused.stderr
    assert words in refused.stderr
    assert not (tmp_path / "run").exists()


def test_no_idle_gpu_ends_the_run_unless_the_recipe_says_otherwise(gpus, tmp_path):
    gpus.set(g0_busy=99, g1_memory_used=79_000_000_000)
    refused = dry_run(tmp_path, gpus)
    assert refused.returncode == 5, refused.stderr
    assert "no GPU is idle (GPU 1" in refused.stderr and "at work 99 % of the time" in refused.stderr
    done = dry_run(tmp_path, gpus, "--set", "device.fallback=cpu")
    assert done.returncode == 0, done.stderr
    assert 'training on the CPU (device.fallback = "cpu")' in done.stderr
    assert "on cpu" in done.stderr


def test_the_cpu_in_the_place_of_a_lost_gpu(gpus, tmp_path):
    gpus.set(g1_handle="error 15")
    done = dry_run(tmp_path, gpus, "--devices", "1,0", "--set", "device.fallback=cpu")
    assert done.returncode == 0, done.stderr
    assert "GPU 1: lost: " in done.stderr and "training on the CPU" in done.stderr
    assert "on cpu" in done.stderr


def taking(gpus, folder):
    """What a run says that chooses a GPU whose lock files are there."""
    shown = devices("--devices", "auto", **gpus.environment(BRIM_GPU_LOCK_FOLDER=str(folder)))
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


NO_LOCKS = "no lock file can be made in"


def test_a_fifo_in_the_place_of_a_lock_file_does_not_block(gpus, tmp_path):
    folder = tmp_path / "claims"
    assert NO_LOCKS not in taking(gpus, folder)
    for lock in list(folder.iterdir()):
        lock.unlink()
        os.mkfifo(lock)
    assert len(list(folder.iterdir())) > 0
    assert NO_LOCKS in taking(gpus, folder)


def test_a_folder_of_locks_that_is_a_link_is_not_followed(gpus, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "link").symlink_to(elsewhere)
    assert NO_LOCKS in taking(gpus, tmp_path / "link")
    assert list(elsewhere.iterdir()) == []


def test_another_users_folder_of_locks_is_not_used(gpus, tmp_path):
    folder = tmp_path / "claims"
    folder.mkdir(0o755)
    os.chown(folder, 65534, 65534)
    assert NO_LOCKS in taking(gpus, folder)
    folder.chmod(0o1777)
    assert NO_LOCKS not in taking(gpus, folder)
