"""What a run on several ranks records of each of them, and what the doctor makes of it."""
import json
import pathlib
import re
import sys

import pytest
from runs import TRAINER, job, run, with_fault  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from trainer import lengthened, metrics, trainer  # noqa: E402

STEPS = 40


def train(run, folder, fault=None, **values):
    command = [TRAINER, *job(folder, **{"train__steps": STEPS, "checkpoint__every_steps": 0, **values})]
    for rank in run.start_ranks(2, with_fault(command, fault) if fault else command):
        result = run.finish(rank)
        assert result.status == 0, result.stderr
    return [line["ranks"] for line in metrics(folder) if "ranks" in line]


def doctor(folder):
    done = trainer("doctor", lengthened(folder), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return {finding["rule"]: finding for finding in report["findings"]}, report["not_recorded"]


def per_rank(folder):
    return json.loads((folder / "run.json").read_text())["per_rank"]


def test_a_straggler_is_named(run, tmp_path):  # noqa: F811
    folder = tmp_path / "run"
    lines = train(run, folder, "rank=1,where=forward,call=1,kind=slow,ms=800")
    # The all-reduce of a step's requests ends a step later, in the line after that.
    assert len(lines) == STEPS - 2
    assert all(line["slowest"] == 1 for line in lines[1:]), lines
    findings, not_recorded = doctor(folder)
    assert re.search(r"rank 1 \(cpu on \S+\) takes", findings["straggler"]["message"])
    assert findings["straggler"]["severity"] in ("warning", "severe")
    assert "uneven_shards" not in findings and "uneven_shards" not in not_recorded
    first, second = per_rank(folder)
    assert (first["rank"], second["rank"]) == (0, 1)
    assert second["busy_s"] > first["busy_s"] and second["busy_s"] > 0.8 * (STEPS - 2)
    verdict = json.loads((folder / "run.json").read_text())["verdict"]  # after half a minute
    assert verdict[0]["rule"] == "straggler", verdict


def test_a_wait_for_sharded_weights_is_counted_once(run, tmp_path):  # noqa: F811
    folder = tmp_path / "run"
    train(run, folder, "rank=1,where=optimizer,kind=slow,ms=300", train__steps=6, telemetry__every_steps=1,
          distributed__strategy='"fsdp"')
    lines = [line for line in metrics(folder) if "phases_s" in line][1:]
    assert max(line["phases_s"]["communication"] for line in lines) > 0.2  # rank 0 waits for the other's
    for line in lines:
        assert min(line["phases_s"].values()) >= 0 and line["phases_s"]["communication"] <= line["step_s"], line


@pytest.mark.parametrize("world, slow, ratio", [(2, 1, 1.5), (2, 1, 4), (4, 0, 1.2), (4, 0, 2)])
def test_a_stragglers_ratio_is_what_was_staged(run, tmp_path, world, slow, ratio):  # noqa: F811
    """Every rank sleeps in its forward pass, far longer than it computes."""
    folder = tmp_path / "run"
    values = {"train__steps": 10, "checkpoint__every_steps": 0, "telemetry__every_steps": 2, "eval__enabled": "false"}
    command = [TRAINER, *job(folder, **values)]
    commands = [with_fault(command, f"where=forward,kind=slow,ms={round((ratio if rank == slow else 1) * 400)}")
                for rank in range(world)]
    for rank in run.start_ranks(world, commands):
        result = run.finish(rank)
        assert result.status == 0, result.stderr
    findings, _ = doctor(folder)
    message = findings["straggler"]["message"]
    found = re.search(r"rank (\d) \(cpu on \S+\) takes ([\d.]+) times the other ranks' time", message)
    assert int(found[1]) == slow, message
    assert float(found[2]) == pytest.approx(ratio, rel=0.05), message
    # A machine that is busy makes ranks wait for each other, beside what was staged.
    assert findings.get("communication_exposed", {"severity": "hint"})["severity"] == "hint", findings


def test_uneven_shards_are_named(run, tmp_path):  # noqa: F811
    folder = tmp_path / "run"
    lines = train(run, folder, batch__global=3, batch__micro=2, telemetry__every_steps=5)
    assert lines and all(line["largest_share_ratio"] == 2 / 1.5 for line in lines), lines
    findings, _ = doctor(folder)
    assert "1.33 times the mean" in findings["uneven_shards"]["message"]
    shares = sorted(rank["samples"] for rank in per_rank(folder))
    assert shares == [STEPS, 2 * STEPS]


def test_a_rank_alone_has_nothing_to_compare(tmp_path):
    folder = tmp_path / "run"
    done = trainer(*job(folder))
    assert done.returncode == 0, done.stderr
    assert not any("ranks" in line for line in metrics(folder))
    assert "per_rank" not in json.loads((folder / "run.json").read_text())
