"""Several ranks, one of which runs out of memory: all agree, and what they learn stays the same."""
import re

import pytest

from runs import TRAINER, run, with_fault  # noqa: F401
from test_same_maths import image_recipe
from trainer import DIGITS, assert_same_tensors, latest_checkpoint, metrics, sets  # noqa: E402

RECIPE = """
[model]
name = "mlp"
hidden = 512
dropout = 0.1
[data]
kind = "synthetic"
samples = {samples}
height = 8
width = 8
eval_samples = 8
[batch]
global = {batch}
[precision]
mode = "fp32"
fused = false  # a measurement would meet the shortage, or memory that a kernel used suffice
[optimizer]
name = "sgd"
momentum = 0.9
[train]
steps = 4
[distributed]
timeout_s = 100
"""


FEW, MANY = 1200, 12000  # samples of a global batch: where a fault is planted, where memory is really short


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "few.toml"
    path.write_text(RECIPE.format(batch=FEW, samples=2 * FEW))
    return path


@pytest.fixture
def large_recipe(tmp_path):
    path = tmp_path / "many.toml"
    path.write_text(RECIPE.format(batch=MANY, samples=2 * MANY).replace("steps = 4", "steps = 2"))
    return path


def train(run, world, recipe, output, fault=None, **values):
    """What the ranks have said."""
    command = [TRAINER, "--recipe", recipe, "--output", output, *sets(**values)]
    results = [run.finish(rank) for rank in run.start_ranks(world, with_fault(command, fault) if fault else command)]
    assert [result.status for result in results] == [0] * world, results[0].stderr
    return "".join(result.stderr for result in results)


# A shortage in the first step strikes in the middle of backward, when tensors are new. In the first
# step buckets are the first ones, later those in the order of readiness.
@pytest.mark.parametrize("world, rank, where, call, kind, values", [
    (2, 1, "backward", 1, "shortage", {}),
    (2, 0, "backward", 2, "no_engine", {}),
    (2, 1, "forward", 2, "oom", {}),
    (3, 1, "backward", 1, "shortage", {"distributed__bucket_mib": 0.3, "distributed__zero": True}),
    (2, 1, "backward", 1, "shortage", {"distributed__compress": "bf16", "distributed__bucket_mib": 0.3}),
    (2, 1, "backward", 1, "oom", {"distributed__static_graph": True}),
    (2, 1, "backward", 2, "oom", {"distributed__static_graph": True}),
    (2, 1, "backward", 1, "shortage", {"distributed__unused_parameters": True}),
    (2, 1, "forward", 3, "oom", {"distributed__unused_parameters": True}),
    (4, 3, "backward", 1, "shortage", {}),
])
def test_one_rank_short_of_memory(world, rank, where, call, kind, values, run, recipe, tmp_path):
    short = train(run, world, recipe, tmp_path / "short", **values,
                  fault=f"rank={rank},where={where},call={call},kind={kind}")
    assert f"out of memory with micro-batch {FEW // world} at step {call};" in short
    if call == 1:  # the run in halves from the start
        train(run, world, recipe, tmp_path / "halves", batch__micro=FEW // world // 2, **values)
        assert_same_tensors(latest_checkpoint(tmp_path / "short"), latest_checkpoint(tmp_path / "halves"))


# Without dropout other passes over the same samples sum to the same but for rounding.
@pytest.mark.parametrize("call", [2, 4])
def test_later_steps_in_halves_learn_the_same(call, run, recipe, tmp_path):
    recipe.write_text(recipe.read_text().replace("dropout = 0.1", "dropout = 0.0"))
    values = {"telemetry__every_steps": 1}
    short = train(run, 2, recipe, tmp_path / "short", **values, fault=f"rank=1,where=backward,call={call},kind=oom")
    assert f"out of memory with micro-batch {FEW // 2} at step {call};" in short
    train(run, 2, recipe, tmp_path / "whole", **values)
    found, expected = [[line["loss"] for line in metrics(tmp_path / name) if "loss" in line]
                       for name in ("short", "whole")]
    assert len(found) == 4 and found[:call - 1] == expected[:call - 1]
    assert found == pytest.approx(expected, rel=1e-5)


# Tensors of a pass over 6000 samples need 79 MiB of the 72 that a rank may take, of one over 3000 they
# need 49: what else a rank takes differs between machines, and has 23 MiB.
def test_ranks_with_little_memory_halve_together(run, large_recipe, tmp_path):
    short = train(run, 2, large_recipe, tmp_path / "short", device__memory_gib=0.14)
    halved = re.findall(r"out of memory with micro-batch \d+ at step (\d+); retrying the step with micro-batch (\d+)", short)
    assert halved and {step for step, _ in halved} == {"1"}, short
    micro = int(halved[-1][1])
    train(run, 2, large_recipe, tmp_path / "parts", batch__micro=micro)
    assert_same_tensors(latest_checkpoint(tmp_path / "short"), latest_checkpoint(tmp_path / "parts"))


# A model half as wide as the recipe's, and less memory than each rank's share of the global batch takes.
TUNED = {"model__hidden": 256, "device__memory_gib": 0.075}


def sizes_of(run):
    """The global and the micro-batch that a run has settled on."""
    text = (run / "recipe.toml").read_text()
    return [int(re.search(rf"^{key} = (\d+)$", text, re.M).group(1)) for key in ("global", "micro")]


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_tune_to_one_size(world, run, large_recipe, tmp_path):
    train(run, world, large_recipe, tmp_path / "tuned", batch__micro="auto", **TUNED)
    _, micro = sizes_of(tmp_path / "tuned")
    assert 8 < micro < MANY // world
    train(run, world, large_recipe, tmp_path / "plain", batch__micro=micro, model__hidden=256)
    assert_same_tensors(latest_checkpoint(tmp_path / "tuned"), latest_checkpoint(tmp_path / "plain"))


# One rank alone runs out in a probe: all take the size for too large. Each batch is another one,
# whose size no earlier job has found.
@pytest.mark.parametrize("rank, where, call, kind, batch", [(1, "backward", 9, "shortage", 11000),
                                                            (0, "forward", 7, "oom", 10000)])
def test_a_rank_short_of_memory_while_tuning(rank, where, call, kind, batch, run, large_recipe, tmp_path):
    train(run, 2, large_recipe, tmp_path / "tuned", **TUNED, batch__micro="auto", batch__global=batch,
          fault=f"rank={rank},where={where},call={call},kind={kind}")
    _, micro = sizes_of(tmp_path / "tuned")
    assert 8 < micro < batch // 2
    train(run, 2, large_recipe, tmp_path / "plain", batch__micro=micro, batch__global=batch, model__hidden=256)
    assert_same_tensors(latest_checkpoint(tmp_path / "tuned"), latest_checkpoint(tmp_path / "plain"))


def test_a_global_batch_that_grows_is_all_ranks_micro_batches(run, large_recipe, tmp_path):
    grows = {**TUNED, "optimizer__batch_rule": "linear", "optimizer__learning_rate": 1e-4}
    train(run, 2, large_recipe, tmp_path / "tuned", batch__global="auto", batch__micro="auto", **grows)
    whole, micro = sizes_of(tmp_path / "tuned")
    assert 8 < micro and whole == 2 * micro
    train(run, 2, large_recipe, tmp_path / "plain", batch__global=whole, batch__micro=micro, **grows)
    assert_same_tensors(latest_checkpoint(tmp_path / "tuned"), latest_checkpoint(tmp_path / "plain"))


# In a probe no rank's batch norms wait for another's, which may have run out of memory before them.
# Each batch is another one, whose size no earlier job has found.
# A few MiB would be short of pieces that are large enough, and not of memory.
@pytest.mark.parametrize("fault, batch", [(None, 20_000), ("rank=1,where=forward,call=7,kind=oom", 22_000),
                                          ("rank=0,where=backward,call=9,kind=shortage", 24_000)])
def test_ranks_with_synchronized_norms_tune_to_one_size(fault, batch, run, large_recipe, tmp_path):
    images = {"model__name": "small_cnn", "model__width": 16, "distributed__sync_batch_norm": True,
              "batch__global": batch}
    large_recipe.write_text(large_recipe.read_text().replace("hidden = 512\ndropout = 0.1\n", ""))
    train(run, 2, large_recipe, tmp_path / "tuned", fault, device__memory_gib=0.3, batch__micro="auto", **images)
    _, micro = sizes_of(tmp_path / "tuned")
    assert 8 < micro < batch // 2
    train(run, 2, large_recipe, tmp_path / "plain", batch__micro=micro, **images)
    assert_same_tensors(latest_checkpoint(tmp_path / "tuned"), latest_checkpoint(tmp_path / "plain"))


def test_larger_micro_batches_are_tried_again(run, recipe, tmp_path):
    result = train(run, 2, recipe, tmp_path / "run", fault="rank=1,where=backward,call=1,kind=oom",
                   train__steps=103, model__hidden=32)
    assert "retrying the step with micro-batch 300" in result
    assert "trying micro-batch 600 again" in result


@pytest.mark.parametrize("model, words", [("narrow_resnet18", ", and the model takes no smaller one: "),
                                          ("wrong_net", ', and a smaller one ends with "Expected more than 1 value per channel')])
def test_half_a_micro_batch_is_one_value_for_a_norm(model, words, run, tmp_path):
    if model == "wrong_net":
        args = ["--recipe", DIGITS, *sets(model__library=str(TRAINER.parent / "wrong_parts.so"), model__name="wrong_net",
                                          model__wrong="one value")]
    else:
        args = ["--recipe", image_recipe(tmp_path, model, 48), *sets(distributed__sync_batch_norm=False)]
    command = [TRAINER, *args, "--output", tmp_path / "run", *sets(batch__global=4)]
    ranks = run.start_ranks(2, with_fault(command, "rank=1,where=backward,call=1,kind=oom"))
    results = [run.finish(rank) for rank in ranks]
    assert [result.status for result in results] == [5, 5], results[0].stderr
    assert "error[resource]: out of memory at step 1 with micro-batch 2" + words in results[0].stderr, results[0].stderr
