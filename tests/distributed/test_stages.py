"""distributed.stages: ranks that compute a model's parts one after the other learn what one rank learns,
through faults, shortages and changes of their number."""
import json
import re
import signal
import time

import pytest
from safetensors.numpy import load_file

from runs import TRAINER, job, run, wait_until, with_fault  # noqa: F401
from test_fsdp import BLOCK_MIB, GPT, LARGE, MIB, alone, trained_apart  # noqa: F401
from test_same_maths import MLP, difference, image_recipe, train, without_distributed
from trainer import assert_same_tensors, latest_checkpoint, metrics, sets, trainer


def stages(count, **more):
    return sets(distributed__stages=count, **{f"distributed__{name}": value for name, value in more.items()})


GPT1 = [*GPT, *sets(batch__micro=1)]


@pytest.mark.parametrize("ranks, args", [
    (2, stages(2)),
    (3, [*stages(3, schedule="gpipe"), *sets(train__clip_norm=0.1, train__ema=0.9)]),
    (4, [*stages(2), *sets(train__recompute=["*"], train__clip_norm=0.1, batch__global=8)]),
    (5, stages(5)),  # a part each
    (2, [*stages(2), *sets(model__freeze=["transformer.h.1.*", "transformer.wpe.*"], optimizer__name="sgd")]),
])
def test_a_gpt_whose_output_layer_is_its_embedding(alone, tmp_path, ranks, args):  # noqa: F811
    one = alone(*GPT1, *without_distributed(args))
    together = train(tmp_path / "run", *GPT1, *args, ranks=ranks)
    assert difference(one, together) < 1e-9


@pytest.mark.parametrize("ranks, args", [
    (2, [*stages(2), *sets(batch__global=61, batch__micro=7, optimizer__name="adamw")]),  # uneven in every step
    (4, [*stages(2), *sets(batch__global=1436, batch__micro=300)]),  # a last step of one sample: a replica has none
])
def test_uneven_micro_batches(alone, tmp_path, ranks, args):  # noqa: F811
    deep = [*MLP, *sets(model__depth=3, train__steps=8)]
    one = alone(*deep, *without_distributed(args))
    together = train(tmp_path / "run", *deep, *args, ranks=ranks)
    assert difference(one, together) < 1e-9
    for run in (one, together):  # a checkpoint of any strategy is evaluated on one rank
        assert [line for line in metrics(run) if "eval_top1" in line]
    losses = [[line["loss"] for line in metrics(run) if "loss" in line] for run in (one, together)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)  # written as float32
    counts = [json.loads((run / "run.json").read_text())["job"] for run in (one, together)]
    assert counts[0]["parameters"] == counts[1]["parameters"]


@pytest.mark.parametrize("model, ranks, args", [
    ("narrow_resnet18", 2, [*stages(2), *sets(batch__micro=6, train__recompute=["layer*"])]),
    ("small_vit", 3, [*stages(3), *sets(batch__micro=4, optimizer__layer_decay=0.5, optimizer__name="adamw",
                                        optimizer__weight_decay=0.1, train__clip_norm=0.1)]),
    ("small_cnn", 2, [*stages(2, cut=["conv3"], schedule="gpipe"), *sets(batch__micro=5, train__ema=0.9)]),
])
def test_models_of_images(tmp_path, model, ranks, args):
    recipe = image_recipe(tmp_path, model, 38)
    args = ["--recipe", recipe, *sets(distributed__sync_batch_norm=False), *args]
    one = train(tmp_path / "one", *without_distributed(args[2:]), *args[:2])
    together = train(tmp_path / "all", *args, ranks=ranks)
    assert difference(one, together) < 1e-9
    alike, shown = [json.loads((run / "run.json").read_text())["sample_predictions"] for run in (one, together)]
    for kind in ("worst", "random"):
        assert len(shown[kind]) == len(alike[kind]) == 12
        for ours, theirs in zip(shown[kind], alike[kind]):
            numbers = [(ours.pop(key), theirs.pop(key)) for key in ("confidence", "loss")]
            assert ours == theirs and all(a in (b, pytest.approx(b or 0, rel=1e-5)) for a, b in numbers), numbers
            assert (together / ours["file"]).read_bytes() == (one / theirs["file"]).read_bytes()


@pytest.mark.parametrize("ranks, schedule, frozen", [(3, "1f1b", 2), (3, "gpipe", 1), (6, "1f1b", 1)])
def test_frozen_stages_before_the_first_that_learns(tmp_path, ranks, schedule, frozen):
    layer = "encoder.layers.encoder_layer_"
    parts = ["class_token", "conv_proj.*", "encoder.pos_embedding", *(f"{layer}{i}.*" for i in range(frozen))]
    args = ["--recipe", image_recipe(tmp_path, "small_vit", 38), *sets(batch__micro=2, model__freeze=parts)]
    one = train(tmp_path / "one", *args)
    together = train(tmp_path / "all", *args, *stages(3, schedule=schedule, cut=[f"{layer}1", f"{layer}2"], sync_batch_norm=False),
                     ranks=ranks)
    assert difference(one, together) < 1e-9


def test_no_gradients_travel_to_frozen_stages(tmp_path):
    args = ["--recipe", image_recipe(tmp_path, "narrow_resnet18", 48), *sets(
        distributed__sync_batch_norm=False, batch__micro=6, data__height=96, data__width=96, checkpoint__enabled=False,
        eval__enabled=False), *stages(2, cut=["layer1.0"])]
    _, all_bytes = trained_apart(tmp_path / "all", *args)
    _, frozen_bytes = trained_apart(tmp_path / "frozen", *args, *sets(model__freeze=["conv1.*", "bn1.*"]))
    assert 0.4 * all_bytes < frozen_bytes < 0.65 * all_bytes


@pytest.mark.parametrize("ranks, args", [(3, stages(3)), (4, [*stages(2), *sets(data__packing="documents")])])
def test_stages_write_the_text_that_one_rank_writes(alone, tmp_path, ranks, args):  # noqa: F811
    text = sets(train__prompt="The ", train__prompt_tokens=30, train__ema=0.5, eval__enabled=True)  # beyond data.length
    runs = [alone(*GPT1, *text, *without_distributed(args)), train(tmp_path / "run", *GPT1, *text, *args, ranks=ranks)]
    one, together = [[line["text"] for line in metrics(run) if "text" in line] for run in runs]
    assert one == together and len(one) == 1 and len(one[0]) > 30


def test_a_checkpoint_serves_every_strategy_and_number_of_ranks(alone, tmp_path):  # noqa: F811
    args = [*GPT1, *sets(train__ema=0.9, schedule__name="constant", optimizer__name="adamw")]
    fsdp = sets(distributed__strategy="fsdp")
    turns = [(2, stages(2)), (2, fsdp), (3, stages(3)), (1, []), (2, stages(2)), (2, [])]
    for steps, (ranks, more) in enumerate(turns, start=1):
        train(tmp_path / "run", *args, *more, *sets(train__steps=steps), "--resume", "auto", ranks=ranks)
    assert difference(alone(*args, *sets(train__steps=len(turns))), tmp_path / "run") < 1e-9
    done = trainer("eval", tmp_path / "run", "--devices", "cpu")
    assert done.returncode == 0 and "perplexity" in done.stdout + done.stderr, done.stderr


@pytest.mark.parametrize("mode", ["bf16", "fp16"])
def test_losses_in_half_precision(alone, tmp_path, mode):  # noqa: F811
    args = [*GPT1, *sets(train__steps=20, telemetry__every_steps=1, optimizer__name="adamw"),
            "--set", f'precision.mode="{mode}"']
    together = train(tmp_path / "run", *args, *stages(2), ranks=2)
    one, two = [[line["loss"] for line in metrics(run) if "loss" in line] for run in (alone(*args), together)]
    assert len(one) == 20 and one[-1] < 0.99 * one[0]  # it learns
    assert two == pytest.approx(one, rel=0.01)


def test_a_run_with_dropout_that_was_killed_continues_to_the_bit(run, tmp_path):  # noqa: F811
    args = [*GPT1, *stages(2), *sets(model__dropout=0.1, precision__mode="fp32", train__steps=6, checkpoint__every_steps=2, train__ema=0.9,
                                     batch__global=8, train__clip_norm=0.1)]
    whole = train(tmp_path / "whole", *args, ranks=2)
    command = [TRAINER, *args, "--output", tmp_path / "killed", "--resume", "auto"]
    ranks = run.start_ranks(2, with_fault(command, "rank=1,where=backward,call=30,kind=kill"))
    assert run.finish(ranks[0]).status == 6
    run.finish(ranks[1])
    for rank in run.start_ranks(2, command):
        assert run.finish(rank).status == 0
    assert_same_tensors(latest_checkpoint(whole), latest_checkpoint(tmp_path / "killed"))


def test_only_the_first_stage_reads_images(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"""
[model]
library = "{TRAINER.parent / 'logged_dataset.so'}"
name = "mlp"
depth = 1
[data]
kind = "logged"
samples = 40
log = "{tmp_path / 'log'}"
workers = 0
[batch]
global = 8
micro = 2
[optimizer]
name = "sgd"
learning_rate = 0.01
[train]
epochs = 2
""")
    for ranks, output in [(2, "run"), (1, "one")]:
        train(tmp_path / output, "--recipe", recipe, *stages(2), *sets(precision__mode="fp64"), ranks=ranks)
        if ranks == 2:
            first, last = [(tmp_path / "log" / f"rank-{rank}").read_text().split() for rank in range(2)]
            assert sorted(map(int, first)) == sorted([*range(40), *range(40)]) and not last
    assert difference(tmp_path / "one", tmp_path / "run") < 1e-9


@pytest.mark.parametrize("args, words", [
    (sets(distributed__schedule="gpipe"), "distributed.schedule has no effect: stages = 1"),
    ([*stages(2), *sets(distributed__bucket_mib=5)], "static_graph and unused_parameters have no effect: each stage has one rank"),
])
def test_keys_that_have_no_effect_are_named(args, words):
    done = trainer("train", *GPT1, *args, "--devices", "cpu,cpu", "--dry-run")
    assert done.returncode == 0 and words in done.stderr, done.stderr


@pytest.mark.parametrize("model, where, call, rank", [("narrow_resnet18", "backward", 1, 1), ("small_cnn", "backward", 5, 0),
                                                      ("small_cnn", "evaluation", 1, 1)])
def test_one_stage_short_of_memory(model, where, call, rank, run, tmp_path):  # noqa: F811
    recipe = image_recipe(tmp_path, model, 48)
    command = [TRAINER, "--recipe", recipe, "--output", tmp_path / "short", *stages(2),
               *sets(distributed__sync_batch_norm=False, distributed__timeout_s=60, precision__mode="fp32",
                     batch__micro=4)]
    ranks = run.start_ranks(2, with_fault(command, f"rank={rank},where={where},call={call},kind=oom"))
    results = [run.finish(rank) for rank in ranks]
    assert [result.status for result in results] == [0, 0], results[1].stderr
    step = {1: 1, 5: 2}[call]
    said = ("out of memory in the evaluation" if where == "evaluation"
            else f"out of memory with micro-batch 4 at step {step};")
    assert all(said in result.stderr for result in results), results[0].stderr
    if (where, call) == ("backward", 1):
        train(tmp_path / "halves", *command[1:3], *command[5:], *sets(batch__micro=2), ranks=2)
        assert_same_tensors(latest_checkpoint(tmp_path / "short"), latest_checkpoint(tmp_path / "halves"))


WIDE = """
[model]
name = "mlp"
hidden = 2048
depth = 1
[data]
kind = "synthetic"
height = 4
width = 4
[batch]
micro = 6000
[eval]
batch = 6000
[precision]
mode = "fp32"
[optimizer]
name = "sgd"
learning_rate = 0.01
[train]
steps = 1
[distributed]
timeout_s = 60
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_message_that_does_not_fit(ranks, run, tmp_path):  # noqa: F811
    """Of 47 MiB, where a rank may take 41: a stage has no memory either for what the other one waits for."""
    recipe = tmp_path / "wide.toml"
    recipe.write_text(WIDE)
    samples = 6000 * ranks
    command = ["--recipe", recipe, *stages(2), *sets(data__samples=samples, data__eval_samples=samples // 2, batch__global=samples)]
    short = [TRAINER, *command, *sets(device__memory_gib=0.04 * ranks), "--output", tmp_path / "short"]
    results = [run.finish(rank) for rank in run.start_ranks(ranks, short)]
    assert [result.status for result in results] == [0] * ranks, results[0].stderr
    for result in results:
        assert "out of memory with micro-batch 6000 at step 1;" in result.stderr
        assert "out of memory in the evaluation with batch size 6000;" in result.stderr
    micro = int(re.findall(r"retrying the step with micro-batch (\d+)", results[0].stderr)[-1])
    train(tmp_path / "parts", *command, *sets(batch__micro=micro, eval__batch=64), ranks=ranks)
    assert_same_tensors(latest_checkpoint(tmp_path / "short"), latest_checkpoint(tmp_path / "parts"))


def test_all_messages_of_a_step_that_do_not_fit(run, tmp_path):  # noqa: F811
    """With GPipe the first stage holds them all, 48 MiB: where they do not fit, smaller ones don't either."""
    command = [TRAINER, *GPT1, *stages(2, schedule="gpipe", cut=["head"], timeout_s=60), "--output", tmp_path / "run",
               *sets(model__layers=1, model__width=256, model__heads=4, data__length=128, batch__global=384,
                     batch__micro=2, device__memory_gib=0.08, precision__mode="fp32", train__recompute=["*"])]
    results = [run.finish(rank) for rank in run.start_ranks(2, command)]
    assert [result.status for result in results] == [5, 5], results[0].stderr
    assert all("out of memory at step 1 with micro-batch 1:" in result.error for result in results)


def test_a_stage_without_its_neighbour_ends_at_the_time_limit(run, tmp_path):  # noqa: F811
    """A rank that is late keeps its heartbeat: the others say that it keeps them waiting."""
    words = job(tmp_path / "run", distributed__stages=2, batch__micro=16, distributed__timeout_s=2)
    ranks = run.start_ranks(2, with_fault([TRAINER, *words], "rank=1,where=backward,call=3,kind=slow,ms=60000"))
    results = [run.finish(rank) for rank in ranks]
    assert [result.status for result in results] == [6, 6]
    assert re.search(r"rank 1 .*kept the others waiting for .* s in the gradients of another stage", results[0].error)


def test_a_stop_ends_ranks_that_wait_for_each_other(run, tmp_path):  # noqa: F811
    """Long before their time limit: a rank that begins a message and does not get through keeps all waiting."""
    words = job(tmp_path / "run", distributed__stages=2, batch__micro=16, train__steps=100_000)
    ranks = run.start_ranks(2, with_fault([TRAINER, *words], "rank=1,where=communication,call=200,kind=slow,ms=300000"))
    lines = tmp_path / "run" / "metrics.jsonl"
    wait_until(lambda: lines.exists() and lines.stat().st_mtime < time.time() - 3, "until no step is taken any more")
    ranks[0].send_signal(signal.SIGTERM)
    results = [run.finish(rank) for rank in ranks]
    assert [result.status for result in results] == [6, 6]
    assert all("a stop was asked for, and all ranks only wait, for 15 s" in result.error for result in results)


SIZES = {"layers = 24": "layers = 36", 'name = "adamw"': 'name = "sgd"\nmomentum = 0\nlearning_rate = 0',
         "enabled = false\n[device]": "enabled = true\n[device]"}


def test_no_rank_holds_more_than_its_stage(run, tmp_path):  # noqa: F811
    """Parameters and gradients of three times what a rank may hold, so that the parameters alone would not fit
    one: drawn at random or read from a file, they are those of a model that one rank builds."""
    text = LARGE
    for old, new in SIZES.items():
        text = text.replace(old, new)
    recipe = tmp_path / "large.toml"
    recipe.write_text(text)
    args = ["--recipe", recipe, *sets(train__steps=1, batch__micro=1, model__dropout=0)]
    whole = latest_checkpoint(train(tmp_path / "one", *args))
    cap = 2 * 36 * BLOCK_MIB / 3
    little = [*stages(4), *sets(device__memory_gib=4 * cap / 1024)]
    drawn = train(tmp_path / "drawn", *args, *little, ranks=4)
    read = train(tmp_path / "read", *args, *little, *sets(run__seed=5, model__pretrained=str(whole / "model.safetensors")),
                 ranks=4)
    for other in (drawn, read):
        ours, theirs = [load_file(path / "model.safetensors") for path in (whole, latest_checkpoint(other))]
        assert ours.keys() == theirs.keys()
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)
    peaks = json.loads((read / "run.json").read_text())["memory"]["stage_peak_bytes"]
    assert max(peaks) < cap * MIB, peaks


@pytest.mark.parametrize("fault", [None, "rank=1,where=backward,call=9,kind=oom"])
def test_stages_tune_to_one_size(fault, run, tmp_path):  # noqa: F811
    samples = 608 if fault else 600  # no size is an earlier run's
    values = {"precision__mode": "fp32", "batch__micro": "auto", "batch__global": samples, "data__length": 64,
              "eval__batch": "auto", "device__memory_gib": 0.1, "train__steps": 2}
    command = [TRAINER, *GPT, *stages(2), *sets(**values), "--output", tmp_path / "run"]
    results = [run.finish(rank) for rank in run.start_ranks(2, with_fault(command, fault) if fault else command)]
    assert [result.status for result in results] == [0, 0], results[0].stderr
    micro = int(re.search(r"^micro = (\d+)$", (tmp_path / "run" / "recipe.toml").read_text(), re.M).group(1))
    assert 4 < micro <= samples // 2, results[0].stderr
    if fault is None:
        assert "out of memory" not in results[0].stderr, results[0].stderr


@pytest.mark.parametrize("ranks, values, words", [
    (3, {}, "stages = 2 does not divide the 3 ranks"),
    (2, {"distributed__strategy": "fsdp"}, 'strategy = "fsdp" and stages = 2 exclude each other'),
    (2, {"distributed__zero": True}, "zero = true and stages = 2"),
    (2, {"distributed__sync_batch_norm": True}, "sync_batch_norm = true and stages = 2"),
    (2, {"distributed__balance": "cost"}, 'balance other than "even" and stages = 2'),
    (2, {"train__cuda_graph": True}, "cuda_graph = true and [distributed] stages = 2"),
    (2, {"batch__micro": "auto", "distributed__schedule": "gpipe"}, 'micro = "auto" and [distributed] schedule = "gpipe"'),
    (2, {"batch__micro": 64}, "found 1 micro-batch for "),
    (4, {"distributed__stages": 4}, "mlp has 3 parts; expected at most so many"),
    (2, {"model__name": "inception_v3"}, "inception_v3 is none"),
    (2, {"distributed__cut": ["layers.7"]}, '"layers.7" is no part of this model, which has layers.0, layers.1'),
    (2, {"distributed__cut": ["layers.0"]}, '"layers.0" begins no later than the stage before it'),
    (2, {"distributed__cut": ["layers.0", "layers.1"]}, "cut: expected 1 part"),
    (2, {"distributed__stages": 1, "distributed__cut": ["layers.1"]}, "cut has 1 part for one stage"),
])
def test_what_contradicts_it_is_refused(ranks, values, words, tmp_path):
    if values.get("model__name"):
        values = {**values, **{"data__kind": "synthetic", "data__height": 299, "data__width": 299}}
    args = sets(**{"distributed__stages": 2, "batch__micro": 16, "batch__global": 64, **values})
    recipe = image_recipe(tmp_path, values["model__name"], 64) if values.get("model__name") else None
    base = ["--recipe", recipe, *sets(distributed__sync_batch_norm=False)] if recipe else MLP
    done = trainer(*base, *args, "--devices", ",".join(["cpu"] * ranks), "--output", tmp_path / "run")
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert not (tmp_path / "run").exists()
