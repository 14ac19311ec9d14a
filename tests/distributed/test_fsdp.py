"""distributed.strategy = "fsdp": ranks that keep rows of a model learn what one rank learns, in less
memory, through faults, shortages and changes of their number."""
import json
import os
import pathlib
import re
import signal
import subprocess

import pytest
from safetensors.numpy import load_file

from runs import TRAINER, TRAINRUN, by_file, run, wait_until, with_fault  # noqa: F401
from test_same_maths import MLP, difference, image_recipe, train, without_distributed
from trainer import DIGITS, LIMIT_S, assert_same_tensors, environment, latest_checkpoint, metrics, sets, tensors, trainer

FSDP = sets(distributed__strategy="fsdp")
TEXT = pathlib.Path(__file__).resolve().parents[2] / "recipes" / "text_bytes.toml"
# Widths and heads that no number of ranks divides; the output layer is the embedding, of 257 rows.
GPT = ["--recipe", TEXT, *sets(model__layers=3, model__heads=3, model__width=21, model__dropout=0,
                               data__length=16, batch__global=7, train__steps=6, schedule__warmup=0,
                               eval__batch=512, precision__mode="fp64")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The runs of one rank by their arguments, each trained once."""
    runs = {}

    def run(*args):
        key = tuple(map(str, args))
        if key not in runs:
            runs[key] = train(tmp_path_factory.mktemp("one") / "run", *args)
        return runs[key]
    return run


@pytest.mark.parametrize("ranks, args", [
    (3, sets(batch__global=64, batch__micro=5, optimizer__name="adamw")),  # 5 micro-batches
    (2, sets(batch__global=1436)),  # every other step has one sample: a rank has none
    (4, sets(batch__global=61, train__clip_norm=0.1, train__ema=0.9)),
    (2, sets(batch__global=61, distributed__unused_parameters=True)),
])
def test_a_model_without_blocks(alone, tmp_path, ranks, args):
    one = alone(*MLP, *without_distributed(args))
    together = train(tmp_path / "run", *MLP, *args, *FSDP, ranks=ranks)
    assert difference(one, together) < 1e-9
    assert [line for line in metrics(together) if "eval_top1" in line]


@pytest.mark.parametrize("ranks, args", [
    (2, []),
    (3, sets(batch__micro=1, train__recompute=["*"])),
    (4, sets(train__ema=0.9, distributed__unused_parameters=True)),
    (4, sets(distributed__shards=2, train__clip_norm=0.1, batch__micro=1, train__ema=0.9)),
    (3, sets(distributed__shards=1, distributed__unused_parameters=True)),
    (2, sets(model__freeze=["transformer.h.0.*"], optimizer__name="sgd")),
    (2, sets(model__freeze=["transformer.h.1.attn.*", "transformer.wpe.*"], train__recompute=["*.1"])),
])
def test_a_gpt_whose_output_layer_is_its_embedding(alone, tmp_path, ranks, args):
    one = alone(*GPT, *without_distributed(args))
    together = train(tmp_path / "run", *GPT, *args, *FSDP, ranks=ranks)
    assert difference(one, together) < 1e-9


def test_a_model_whose_constructor_reads_its_weights(alone, tmp_path):
    args = ["--recipe", DIGITS, *sets(
        model__name="reading_net", model__library=str(TRAINER.parent / "reading_net.so"), train__steps=6,
        optimizer__learning_rate=0.01, precision__mode="fp64")]
    together = train(tmp_path / "run", *args, *FSDP, ranks=2)
    assert difference(alone(*args), together) < 1e-9


# With 38 images a last step has 2, so that one of 3 ranks has none. Evaluations of 5 on 2 ranks take
# one of them another pass.
@pytest.mark.parametrize("model, ranks, samples, args", [
    ("narrow_resnet18", 2, 43, []),
    ("narrow_resnet18", 3, 43, sets(train__recompute=["layer*"], distributed__compress="none")),
    ("small_vit", 3, 38, sets(distributed__sync_batch_norm=False, optimizer__layer_decay=0.5, batch__micro=2,
                              optimizer__name="adamw", optimizer__weight_decay=0.1, train__clip_norm=0.1)),
    ("small_cnn", 2, 38, sets(data__eval_samples=5, eval__batch=1)),
])
def test_models_of_images(alone, tmp_path, model, ranks, samples, args):
    recipe = image_recipe(tmp_path, model, samples)
    one = train(tmp_path / "one", "--recipe", recipe, *without_distributed(args))
    together = train(tmp_path / "all", "--recipe", recipe, *args, *FSDP, ranks=ranks)
    assert difference(one, together) < 1e-9


def trained_apart(folder, *words):
    """Losses of two ranks in a network of their own, and how many bytes went over it."""
    script = 'ip link set lo up && "$@" >&2 && cat /sys/class/net/lo/statistics/rx_bytes'
    done = subprocess.run(["unshare", "--net", "--mount-proc", "--pid", "--fork", "sh", "-c",
                           f"mount -t sysfs none /sys; {script}", "sh", TRAINRUN, "--nproc-per-node=2", TRAINER,
                           *map(str, words), "--output", folder], env=environment(), capture_output=True, text=True,
                          timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return [line["loss"] for line in metrics(folder) if "loss" in line], int(done.stdout)


@pytest.mark.parametrize("mode", ["bf16", "fp16"])
def test_blocks_travel_in_the_runs_precision(tmp_path, mode):
    """Matrices are most of what is gathered and summed; the rest, and what ranks tell each other, stays as it is."""
    wide = [*GPT, *sets(model__width=96, telemetry__every_steps=1), *FSDP, "--set"]
    low, low_bytes = trained_apart(tmp_path / mode, *wide, f'precision.mode="{mode}"')
    high, high_bytes = trained_apart(tmp_path / "fp32", *wide, 'precision.mode="fp32"')
    assert low != high and low == pytest.approx(high, rel=0.01)
    assert 0.45 * high_bytes < low_bytes < 0.7 * high_bytes
    ours = tensors(latest_checkpoint(tmp_path / mode))
    assert {str(value.dtype) for name, value in ours.items() if name.startswith(("model/", "optimizer/momentum"))} == {"float32"}


def test_a_slow_rank_changes_no_bit(run, tmp_path):  # noqa: F811
    command = [TRAINER, *GPT, *sets(precision__mode="fp32", batch__micro=2), *FSDP, "--output"]
    for name, faults in (("plain", None), ("slow", "rank=1,where=forward,call=1,kind=slow")):
        words = [*command, tmp_path / name]
        for rank in run.start_ranks(3, with_fault(words, faults) if faults else words):
            assert run.finish(rank).status == 0
    assert_same_tensors(latest_checkpoint(tmp_path / "plain"), latest_checkpoint(tmp_path / "slow"))


def test_a_checkpoint_serves_every_strategy_and_number_of_ranks(alone, tmp_path):
    args = [*GPT, *sets(train__ema=0.9, schedule__name="constant")]
    zero = sets(distributed__zero=True)
    hybrid = [*FSDP, *sets(distributed__shards=2)]
    turns = [(3, FSDP), (2, zero), (2, FSDP), (1, []), (4, hybrid), (2, []), (2, FSDP)]
    for steps, (ranks, more) in enumerate(turns, start=1):
        train(tmp_path / "run", *args, *more, *sets(train__steps=steps), "--resume", "auto", ranks=ranks)
    assert difference(alone(*args, *sets(train__steps=len(turns))), tmp_path / "run") < 1e-9
    done = trainer("eval", tmp_path / "run", "--devices", "cpu")
    assert done.returncode == 0 and "perplexity" in done.stdout + done.stderr, done.stderr


def test_a_run_that_was_killed_continues_to_the_bit(run, tmp_path):
    args = [*GPT, *sets(precision__mode="fp32", train__steps=8, checkpoint__every_steps=2, train__ema=0.9), *FSDP]
    whole = train(tmp_path / "whole", *args, ranks=2)
    command = [TRAINER, *args, "--output", tmp_path / "killed", "--resume", "auto"]
    for where, call in (("backward", 4), ("checkpoint", 1)):
        ranks = run.start_ranks(2, with_fault(command, f"rank=1,where={where},call={call},kind=kill"))
        assert run.finish(ranks[0]).status == 6
        run.finish(ranks[1])
    for rank in run.start_ranks(2, command):
        assert run.finish(rank).status == 0
    assert_same_tensors(latest_checkpoint(whole), latest_checkpoint(tmp_path / "killed"))


# In the first pass no rank has seen the order of a pass yet.
@pytest.mark.parametrize("model, where, call, kind, values", [
    ("small_vit", "forward", 1, "oom", {}),
    ("narrow_resnet18", "backward", 1, "shortage", {}),
    ("narrow_resnet18", "backward", 1, "shortage", {"distributed__shards": 1}),
    ("narrow_resnet18", "forward", 3, "oom", {"train__recompute": ["layer*"]}),
    ("small_vit", "backward", 3, "oom", {"distributed__unused_parameters": True}),
])
def test_one_rank_short_of_memory(model, where, call, kind, values, run, tmp_path):
    recipe = image_recipe(tmp_path, model, 48)
    command = [TRAINER, "--recipe", recipe, "--output", tmp_path / "short", *FSDP,
               *sets(distributed__sync_batch_norm=False, distributed__timeout_s=60, precision__mode="fp32",
                     precision__fused=True, **values)]  # else the first pass belongs to a measurement
    ranks = run.start_ranks(2, with_fault(command, f"rank=1,where={where},call={call},kind={kind}"))
    results = [run.finish(rank) for rank in ranks]
    assert [result.status for result in results] == [0, 0], results[1].stderr
    assert all(f"out of memory with micro-batch 6 at step {call};" in result.stderr for result in results)
    if call == 1:
        train(tmp_path / "halves", *command[1:3], *command[5:], *sets(batch__micro=3), ranks=2)
        assert_same_tensors(latest_checkpoint(tmp_path / "short"), latest_checkpoint(tmp_path / "halves"))


def test_ranks_tune_to_one_size(tmp_path):
    # A fused form that only the run measures to be faster could take more memory than the probes'.
    done = trainer(*GPT, *sets(precision__mode="fp32", precision__fused=False, batch__micro="auto", batch__global=600,
                               data__length=64, eval__batch="auto", device__memory_gib=0.08, train__steps=2), *FSDP,
                   "--devices", "cpu,cpu", "--output", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    micro = int(re.search(r"^micro = (\d+)$", (tmp_path / "run" / "recipe.toml").read_text(), re.M).group(1))
    assert 4 < micro < 300 and "out of memory" not in done.stderr, done.stderr


LARGE = """
[model]
name = "gpt"
layers = 24
heads = 8
width = 256
[data]
kind = "synthetic_tokens"
samples = 64
length = 16
vocabulary = 512
[batch]
global = 4
[precision]
mode = "fp32"
[optimizer]
name = "adamw"
[train]
steps = 3
task = "language_modeling"
[eval]
enabled = false
[checkpoint]
enabled = false
[device]
select = "cpu"
"""
MIB = 1 << 20
BLOCK_MIB = 12 * 256 * 256 * 4 / MIB
PARAMETERS_MIB = 24 * BLOCK_MIB


def peaks_mib(run, recipe, folder, world, *options):  # noqa: F811
    """The most memory that each rank has had, as the kernel counts it."""
    peaks = []
    for process in run.start_ranks(world, [TRAINER, "--recipe", recipe, "--output", folder, *options],
                                   by_file(folder.parent)):
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, run.finish(process).stderr
        peaks.append(used.ru_maxrss / 1024)
    return peaks


def test_each_rank_has_its_share_of_memory(run, tmp_path):  # noqa: F811
    recipe = tmp_path / "large.toml"
    recipe.write_text(LARGE)
    tiny = tmp_path / "tiny.toml"
    tiny.write_text(LARGE.replace("layers = 24", "layers = 1").replace("width = 256", "width = 8"))
    base = min(peaks_mib(run, tiny, tmp_path / "tiny", 4, *FSDP))
    shares = peaks_mib(run, recipe, tmp_path / "large", 4, *FSDP)
    # Parameters, gradients and two averages: a quarter of each, and some blocks. All of it is more.
    most = base + 4 * PARAMETERS_MIB * 0.3 + 8 * BLOCK_MIB
    assert max(shares) < most < base + 3 * PARAMETERS_MIB, f"{shares}; {base:.0f} without a model"
    account = json.loads((tmp_path / "large" / "run.json").read_text())["memory"]
    state = sum(account[f"{name}_bytes"] for name in ("parameters", "gradients", "optimizer")) / MIB
    assert PARAMETERS_MIB < state < 1.05 * PARAMETERS_MIB  # a quarter of 4 times as much


def test_no_rank_builds_the_whole_model(run, tmp_path):  # noqa: F811
    """Of a state that is little more than the parameters each rank's part is far less than these alone; drawn at
    random or read from a file, they are those of a model that one rank builds."""
    recipe = tmp_path / "large.toml"
    recipe.write_text(LARGE.replace("width = 256", "width = 384").replace('name = "adamw"', 'name = "sgd"\nmomentum = 0\nlearning_rate = 0')
                      .replace("enabled = false\n[device]", "enabled = true\n[device]").replace("steps = 3", "steps = 1"))
    whole = latest_checkpoint(train(tmp_path / "one", "--recipe", recipe))
    tiny = tmp_path / "tiny.toml"
    tiny.write_text(recipe.read_text().replace("layers = 24", "layers = 1").replace("width = 384", "width = 8"))
    base = min(peaks_mib(run, tiny, tmp_path / "tiny", 4, *FSDP))
    pretrained = sets(run__seed=5, model__pretrained=str(whole / "model.safetensors"))
    block = (384 / 256) ** 2 * BLOCK_MIB
    for name, more in (("drawn", []), ("read", pretrained)):
        most = max(peaks_mib(run, recipe, tmp_path / name, 4, *FSDP, *more))
        assert most < base + 2 * 24 * block / 4 + 10 * block < base + 24 * block, (name, most, base)
        ours, theirs = [load_file(path / "model.safetensors") for path in (whole, latest_checkpoint(tmp_path / name))]
        assert all(ours[tensor].tobytes() == theirs[tensor].tobytes() for tensor in ours)


def test_a_state_of_three_times_the_cap(run, tmp_path):  # noqa: F811
    recipe = tmp_path / "large.toml"
    recipe.write_text(LARGE.replace("enabled = false\n[device]", "enabled = true\n[device]")
                      .replace("steps = 3", "steps = 2"))
    cap = 4 * PARAMETERS_MIB / 3  # of a rank's tensors

    def ranks(name, *more):
        command = [TRAINER, "--recipe", recipe, *sets(device__memory_gib=4 * cap / 1024, distributed__timeout_s=60),
                   *more, "--output", tmp_path / name]
        return [run.finish(rank) for rank in run.start_ranks(4, command)]
    refused = ranks("ddp")
    assert {rank.status for rank in refused} == {5} and "does not fit" in refused[0].stderr, refused[0].stderr
    for done in ranks("fsdp", *FSDP):
        assert done.status == 0, done.stderr
    # A rank that reads a checkpoint needs some more.
    more = sets(device__memory_gib=4.5 * cap / 1024, train__steps=3)
    for resumed in ranks("fsdp", *FSDP, "--resume", "auto", *more):
        assert resumed.status == 0, resumed.stderr


@pytest.mark.parametrize("values, words", [
    ({"distributed__zero": True}, "zero = true and strategy"),
    ({"distributed__static_graph": True}, "static_graph = true is for"),
    ({"distributed__strategy": "ddp", "distributed__shards": 2}, 'shards = 2 needs strategy = "fsdp"'),
    ({"distributed__shards": 2, "device__select": "cpu,cpu,cpu"}, "shards = 2 does not divide the 3 ranks"),
    ({"optimizer__name": "lamb"}, "expected sgd, adam or adamw, found lamb"),
    ({"distributed__strategy": "zero3"}, 'expected one of "ddp", "fsdp"'),
])
def test_what_contradicts_it_is_refused(values, words, tmp_path):
    done = trainer(*MLP, *sets(**{"distributed__strategy": "fsdp", **values}), "--output", tmp_path / "run")
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("split", [FSDP, sets(distributed__stages=2, batch__micro=1)])
def test_a_stop_while_text_is_written_ends_all_ranks(split, run, tmp_path):  # noqa: F811
    """Of one of them: each token is a forward pass of all."""
    text = sets(train__steps=1, train__prompt="a", train__prompt_tokens=100_000, eval__enabled=True)
    ranks = run.start_ranks(2, [TRAINER, *GPT, *split, *text, "--devices", "cpu", "--output", tmp_path / "run"])
    said = run.started[0][1]
    wait_until(lambda: ": evaluation  loss" in said.read_text(), "until text is written")
    ranks[1].send_signal(signal.SIGTERM)
    results = [run.finish(rank) for rank in ranks]
    assert [result.status for result in results] == [0, 0], results[0].stderr  # of a run that was through
    assert latest_checkpoint(tmp_path / "run").name.endswith("1")
