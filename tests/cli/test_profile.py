"""--profile steps=A..B: a Kineto trace of exactly these steps, which changes nothing else."""
import json
import pickle

import pytest
from torch_tb_profiler.io import Cache
from torch_tb_profiler.profiler.data import RunProfileData

from trainer import DIGITS, assert_same_tensors, latest_checkpoint, sets, trainer

PHASES = {"data_wait", "copy", "transform", "forward", "backward", "optimizer", "other"}
# In bf16, or where it is measured to be faster, linear layers are another operator than aten::addmm.
SHORT = sets(train__steps=12, eval__every_epochs=0, precision__mode="fp32", run__deterministic=True)


def ranges(events, test):
    found = [event for event in events if event.get("ph") == "X" and test(event)]
    return sorted(found, key=lambda event: event["ts"])


def inside(event, step):
    return step["ts"] <= event["ts"] and event["ts"] + event["dur"] <= step["ts"] + step["dur"] + 1


def trace_of(file):
    trace = json.loads(file.read_text())  # all of it is JSON
    steps = ranges(trace["traceEvents"], lambda e: e["name"].startswith("ProfilerStep#"))
    return trace["traceEvents"], steps


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile") / "run"
    done = trainer("--recipe", DIGITS, "--output", folder, "--profile", "steps=4..6",
                   *sets(batch__micro=32), *SHORT)
    assert done.returncode == 0, done.stderr
    return folder, done.stderr


def test_on_a_cpu_nobody_asks_for_gpus(run):
    assert "ERROR" not in run[1] and "gpuGetDeviceCount" not in run[1]


def test_exactly_these_steps_with_their_phases_and_operators(run):
    folder, said = run
    file = folder / "profile-steps-4-6.pt.trace.json"
    assert f"profile of 3 steps: {file}" in said
    assert {path.name for path in folder.glob("*profile*")} == {file.name, "profile-steps-4-6.memory.pickle"}
    events, steps = trace_of(file)
    assert [step["name"] for step in steps] == [f"ProfilerStep#{n}" for n in (4, 5, 6)]
    for step in steps:
        phases = ranges(events, lambda e: e.get("cat") == "user_annotation" and inside(e, step))
        names = [event["name"] for event in phases if event is not step]
        assert set(names) - {"communication", step["name"]} == PHASES, names
        # Two micro-batches a step.
        assert names.count("forward") == names.count("backward") == 2 and names.count("optimizer") == 1
        assert names.index("forward") < names.index("backward") < names.index("optimizer")
        operators = {e["name"] for e in ranges(events, lambda e: e.get("cat") == "cpu_op" and inside(e, step))}
        assert {"aten::addmm", "brim::cross_entropy"} <= operators
        assert any("AddmmBackward" in name for name in operators)
    forwards = ranges(events, lambda e: e["name"] == "forward" and e.get("cat") == "user_annotation")
    assert len(forwards) == 6
    sums = ranges(events, lambda e: e["name"] == "aten::addmm")
    assert sums and all(any(inside(e, step) for step in steps) for e in sums)
    assert sums[0]["args"]["Input Dims"][1] == [32, 64]


def test_tensorboards_profile_plugin_reads_it(run):
    folder, _ = run
    with Cache() as cache:
        data = RunProfileData.parse("rank0", None, str(folder / "profile-steps-4-6.pt.trace.json"), cache)
    data.process()
    assert data.steps_names == ["4", "5", "6"]
    calls = {operator.name: operator.calls for operator in data.op_list_groupby_name}
    assert calls["aten::addmm"] > 0 and calls["aten::addmm"] % 3 == 0


def test_pytorchs_memory_viewer_reads_the_snapshot(run):
    from torch.cuda import _memory_viz as viewer
    snapshot = pickle.loads((run[0] / "profile-steps-4-6.memory.pickle").read_bytes())
    assert "<html>" in viewer.trace_plot(snapshot)
    (trace,) = snapshot["device_traces"]
    made = {event["addr"]: event for event in trace if event["action"] == "alloc"}
    freed = [event for event in trace if event["action"] == "free_completed"]
    assert len(made) > 10 and all(event["addr"] in made for event in freed)
    names = {frame["name"] for event in trace for frame in event["frames"]}
    assert {"aten::addmm", "forward", "optimizer"} <= names
    assert "total_allocated" in viewer.segsum(snapshot) and "TOTAL MEM" in viewer.trace(snapshot)


def test_it_changes_nothing_that_is_learned(run, tmp_path):
    folder, _ = run
    plain = tmp_path / "plain"
    assert trainer("--recipe", DIGITS, "--output", plain, *sets(batch__micro=32), *SHORT).returncode == 0
    assert_same_tensors(latest_checkpoint(folder), latest_checkpoint(plain))
    assert not list(plain.glob("*.pt.trace.json"))


def test_each_rank_has_a_file_of_its_own(tmp_path):
    done = trainer("--recipe", DIGITS, "--output", tmp_path / "run", "--devices", "cpu,cpu",
                   "--profile", "steps=2..3", *SHORT)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        events, steps = trace_of(tmp_path / "run" / f"profile-steps-2-3.rank-{rank}.pt.trace.json")
        assert [step["name"] for step in steps] == ["ProfilerStep#2", "ProfilerStep#3"]
        assert ranges(events, lambda e: e["name"] == "communication")


def test_steps_beyond_the_end_are_a_warning(tmp_path):
    done = trainer("--recipe", DIGITS, "--output", tmp_path / "none", "--profile", "steps=50..60", *SHORT)
    assert done.returncode == 0
    assert "this run ended at step 12, so none of these steps were profiled" in done.stderr
    assert not list((tmp_path / "none").glob("*.pt.trace.json*"))
    done = trainer("--recipe", DIGITS, "--output", tmp_path / "some", "--profile", "steps=11..20", *SHORT)
    assert done.returncode == 0
    assert "so only 2 of these steps were profiled" in done.stderr
    _, steps = trace_of(tmp_path / "some" / "profile-steps-11-20.pt.trace.json")
    assert [step["name"] for step in steps] == ["ProfilerStep#11", "ProfilerStep#12"]
    done = trainer("--recipe", DIGITS, "--output", tmp_path / "some", "--resume", "auto", "--profile", "steps=3..4", *SHORT)
    assert done.returncode == 0
    assert "finished already" in done.stderr and "none of these steps were profiled" in done.stderr


@pytest.mark.parametrize("words", ["steps=15..10", "steps=a..b", "10..15", "steps=0..3", "steps=1..5000"])
def test_bad_words_are_refused_before_anything_is_made(tmp_path, words):
    done = trainer("--recipe", DIGITS, "--output", tmp_path / "run", "--profile", words)
    assert done.returncode == 2 and "as in steps=10..15" in done.stderr
    assert not (tmp_path / "run").exists()
