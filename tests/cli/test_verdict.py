"""The table of docs/verdict.md, situation by situation: staged in the files of a healthy run, and live."""
import copy
import itertools
import json
import math
import re

import pytest

from trainer import DIGITS, SOURCE, lengthened, sets, trainer

MARGIN = 0.03  # of a threshold: percentiles of a long run are kept to 1 %
SEVERITIES = ("hint", "warning", "severe")

HEALTHY = {
    "record": {"device": "cuda:0", "ranks": 4, "machine": {"cores": 16},
               "job": {"precision": "bf16", "matrix_units": True, "convolutions": True, "channels_last": True,
                       "micro_batch": 64}},
    "recipe": {"data": {"cache": "none", "workers": 4}, "batch": {"global": 256, "micro": 64},
               "distributed": {"balance": "even", "compress": "none"},
               "telemetry": {"every_steps": 10, "histograms_every_steps": 0}},
    "step_s": 0.1,
    "every_steps": 10,
    "shares": {"data_wait": 0.01, "copy": 0.004, "transform": 0.006, "forward": 0.32, "backward": 0.55, "communication": 0.02,
               "optimizer": 0.06, "other": 0.03},
    "metrics": {"memory": {"peak_bytes": 68e9, "cap_bytes": 80e9},
                "device": {"busy_percent": 93, "slowed": 0, "host_syncs": 0},
                "ranks": {"slowest": 2, "slowest_ratio": 1.01, "largest_share_ratio": 1.0},
                "process": {"swapped_bytes": 0, "major_faults_per_s": 0.1},
                "machine": {"load": 9.6, "io_stalled_percent": 0.5}},
}


def share(phase):
    """The phase takes so many per cent, which the others lose in proportion."""
    def change(run, percent):
        others = {name: value for name, value in run["shares"].items() if name != phase}
        left = (1 - percent / 100) / sum(others.values())
        run["shares"] = {**{name: value * left for name, value in others.items()}, phase: percent / 100}
    return change


def metric(section, key, scale=1.0):
    def change(run, value):
        run["metrics"][section][key] = value * scale
    return change


def job(key, value):
    """Computing takes so many per cent, with this in the job's record."""
    def change(run, percent):
        run["record"]["job"][key] = value
        share("evaluation")(run, 100 - percent / 0.93)
    return change


def all_of(*changes):
    def change(run, value):
        for one in changes:
            one(run, value)
    return change


def short_steps(run, _):
    run["step_s"] = 0.005
    run["every_steps"] = 200
    run["record"]["ranks"] = 1  # CUDA graphs are not for several


def small_batch(run, samples):
    short_steps(run, samples)
    run["record"]["device"] = "cpu"
    run["record"]["job"]["micro_batch"] = math.ceil(samples)
    run["recipe"]["batch"] = {"global": math.ceil(samples), "micro": math.ceil(samples)}


def lines_each_step(run, percent):
    share("other")(run, percent)
    run["recipe"]["telemetry"]["every_steps"] = 1


def full_memory(run, _):
    run["metrics"]["memory"]["peak_bytes"] = 78e9


def some_wait(run, _):
    share("data_wait")(run, 4)


STAGE = {
    "slow loader": share("data_wait"),
    "slow disk": all_of(some_wait, metric("machine", "io_stalled_percent")),
    "exposed communication": share("communication"),
    "straggler": metric("ranks", "slowest_ratio"),
    "uneven shards": metric("ranks", "largest_share_ratio"),
    "fp32 on matrix units": job("precision", "fp32"),
    "images in NCHW order": job("channels_last", False),
    "bound by launches": all_of(short_steps, metric("device", "busy_percent")),
    "host syncs": metric("device", "host_syncs"),
    "swinging utilisation": lambda run, swing: run["metrics"]["device"].update(busy_percent=[99, 99 - swing]),
    "memory full, compute idle": all_of(full_memory, metric("device", "busy_percent")),
    "small batches on a CPU": small_batch,
    "bookkeeping": lines_each_step,
    "memory mostly empty": metric("memory", "peak_bytes", 80e9 / 100),
    "throttling": metric("device", "slowed", 1 / 100),
    "swapped out": metric("process", "swapped_bytes", 1e6),
    "read back from disk": metric("process", "major_faults_per_s"),
    "CPU oversubscribed": metric("machine", "load", 16),
}


def rows():
    lines = (SOURCE / "docs" / "verdict.md").read_text().splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {row[0]: dict(zip(table[0], row)) for row in table[2:]}


ROWS = rows()


def write(run, folder):
    def toml(value):
        return json.dumps(value)
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(run["record"]))
    (folder / "recipe.toml").write_text("".join(
        f"[{section}]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in keys.items())
        for section, keys in run["recipe"].items()))
    lines = []
    for i in range(40):
        line = {"step": run["every_steps"] * (i + 1), "step_s": run["step_s"], "samples_per_s": 256 / run["step_s"],
                "phases_s": {phase: part * run["step_s"] for phase, part in run["shares"].items()}}
        for section, keys in run["metrics"].items():
            line[section] = {key: value[i % 2] if isinstance(value, list) else value for key, value in keys.items()}
        lines.append(json.dumps(line) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines))
    return folder


def findings(folder):
    done = trainer("doctor", folder, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["not_recorded"] == {}
    return {finding["rule"]: finding for finding in report["findings"]}


def thresholds(row):
    return [float(re.match(r"[\d.]+", row[severity])[0]) for severity in SEVERITIES]


def test_a_healthy_run_is_silent(tmp_path):
    assert findings(write(copy.deepcopy(HEALTHY), tmp_path / "run")) == {}
    done = trainer("doctor", tmp_path / "run")
    assert done.stdout == "nothing stands out after 400 steps\n"


def test_every_rule_is_in_the_table_and_every_row_is_staged():
    assert set(ROWS) == set(STAGE) and len(ROWS) >= 14
    names = set(re.findall(r'\{"(\w+)", check_', (SOURCE / "framework/doctor/rules/rules.cpp").read_text()))
    assert {row["rule"].strip("`") for row in ROWS.values()} == names
    assert all(row["tested"].startswith(("live", "recorded")) for row in ROWS.values())


# Situations that no other one changes the word about are staged at once.
AT_ONCE = ["straggler", "host syncs", "memory mostly empty", "throttling", "swapped out",
           "read back from disk", "CPU oversubscribed"]
GROUPS = [AT_ONCE, *([name] for name in STAGE if name not in AT_ONCE)]


def staged(run, name, place, side):
    """Stages it at that side of the threshold of a severity; the finding, where there is one."""
    row = ROWS[name]
    levels = thresholds(row)
    worse = 1 if levels[0] < levels[-1] else -1
    STAGE[name](run, levels[place] * (1 + side * worse * MARGIN))
    expected = (None, *SEVERITIES)[place + (side > 0)]
    return {row["rule"].strip("`"): expected} if expected else {}


def assert_told(run, expected, folder):
    found = findings(write(run, folder))
    assert {key: finding["severity"] for key, finding in found.items()} == expected
    return found


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_staged_situations_are_told_as_loudly_as_the_table_says(names, tmp_path):
    for place, side in itertools.product(range(len(SEVERITIES)), (-1, 1)):
        run, expected = copy.deepcopy(HEALTHY), {}
        for name in names:
            expected |= staged(run, name, place, side)
        found = assert_told(run, expected, tmp_path / f"{place}{side}")
        for row in (ROWS[name] for name in names if side == 1):
            key = re.search(r"`(.+?)`", row["what to change"])
            assert (key[1] if key else "forward") in found[row["rule"].strip("`")]["change"]


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_situation_alone_is_told_alone(name, tmp_path):
    run = copy.deepcopy(HEALTHY)
    assert_told(run, staged(run, name, len(SEVERITIES) - 1, 1), tmp_path / "run")


@pytest.mark.parametrize("batch, severity", [(21, None), (15, "hint"), (5, "warning"), (3, "severe")])
def test_live_shards_that_two_ranks_cannot_divide(batch, severity, tmp_path):
    run = tmp_path / "run"
    done = trainer("--recipe", DIGITS, "--output", run, "--devices", "cpu,cpu",
                   *sets(batch__global=batch, train__steps=40, eval__every_epochs=0))
    assert done.returncode == 0, done.stderr
    report = json.loads(trainer("doctor", lengthened(run), "--json").stdout)
    found = {finding["rule"]: finding["severity"] for finding in report["findings"]}
    assert found.get("uneven_shards") == severity, report


@pytest.mark.parametrize("channels_last", [False, True])
def test_live_images_in_nchw_order(channels_last, tmp_path):
    run = tmp_path / "run"
    done = trainer("--recipe", DIGITS, "--output", run, *sets(
        model__name="small_cnn", model__width=16, batch__global=32, train__steps=20, eval__every_epochs=0,
        precision__channels_last=channels_last, telemetry__every_steps=5))
    assert done.returncode == 0, done.stderr
    report = json.loads(trainer("doctor", lengthened(run), "--json").stdout)
    found = {finding["rule"] for finding in report["findings"]}
    assert ("layout" in found) == (not channels_last), report
