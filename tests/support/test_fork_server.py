"""A run of a program that is loaded once is the run of one that is started: what it says, how it ends, where."""
import os
import pathlib
import signal
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from trainer import DIGITS, TRAINER, environment, latest_checkpoint, sets, start, trainer  # noqa: E402


def started(*args, cwd=None):
    return subprocess.run([TRAINER, *map(str, args)], cwd=cwd, env=environment(), text=True, stdin=subprocess.DEVNULL,
                          capture_output=True)


@pytest.mark.parametrize("args", [(), ("version",), ("train", "digits", "--resume", ""), ("recipe", "show", "digits"),
                                  ("recipe", "check", "here.toml"), ("data", "inspect", "--from", "é")], ids=str)
def test_it_says_and_ends_as_one_that_is_started(args, tmp_path):
    (tmp_path / "here.toml").write_text('extends = "digits"\n[run]\nsed = 1\n')
    ours, theirs = trainer(*args, cwd=tmp_path), started(*args, cwd=tmp_path)
    assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)


def test_it_learns_to_the_bit_what_one_that_is_started_learns(tmp_path):
    for name, run in (("ours", trainer), ("theirs", started)):
        done = run("--recipe", DIGITS, "--output", tmp_path / name, *sets(train__steps=3, eval__enabled=False))
        assert done.returncode == 0, done.stderr
    ours, theirs = (latest_checkpoint(tmp_path / name) / "model.safetensors" for name in ("ours", "theirs"))
    assert ours.read_bytes() == theirs.read_bytes()


def test_several_run_at_once_and_end_as_they_are_told(tmp_path):
    runs = [start("--recipe", DIGITS, "--output", tmp_path / name, *sets(train__steps=1_000_000)) for name in "ab"]
    while not all((tmp_path / name / "metrics.jsonl").exists() for name in "ab"):
        assert all(run.poll() is None for run in runs)
    runs[0].send_signal(signal.SIGTERM)
    runs[1].kill()
    assert [run.communicate()[1].count("state saved") for run in runs] == [1, 0]
    assert [run.returncode for run in runs] == [75, -signal.SIGKILL]


def test_variables_are_the_runs_own(monkeypatch):
    monkeypatch.setenv("BRIM_NVML_LIBRARY", "/nowhere.so")
    assert "/nowhere.so" in trainer("devices").stdout
    monkeypatch.delenv("BRIM_NVML_LIBRARY")
    assert "/nowhere.so" not in trainer("devices").stdout
    assert "/there.so" in trainer("devices", BRIM_NVML_LIBRARY="/there.so").stdout


def test_its_own_variables_are_none_of_a_runs(tmp_path):
    command = ["--recipe", DIGITS, *sets(train__steps=1), "--output", tmp_path / "run", "--set"]
    done = trainer(*command, f'telemetry.exec=["sh", "-c", "env >{tmp_path}/variables"]')
    assert done.returncode == 0, done.stderr
    names = {line.split("=")[0] for line in (tmp_path / "variables").read_text().splitlines()}
    assert "LD_PRELOAD" not in names and "BRIM_FORK_SERVER" not in names and set(environment()) <= names
    assert os.environ.keys() - names <= {name for name in os.environ if name.startswith("PYTEST")}
