"""Several ranks learn what one rank learns: the trainer's own checkpoints, compared.

In float64 sums in another order differ by 1e-16 each, so that any fault of the maths shows.
"""
import numpy as np
import pytest

from runs import TRAINER, Run
from trainer import DIGITS, assert_same_tensors, latest_checkpoint, metrics, sets, tensors, trainer

STEPS = 20
MLP = ["--recipe", DIGITS, *sets(train__steps=STEPS, optimizer__learning_rate=0.01,
                                 telemetry__every_steps=1, precision__mode="fp64")]


def train(folder, *args, ranks=1):
    if ranks == 1:
        done = trainer(*args, "--devices", "cpu", "--output", folder)
        assert done.returncode == 0, done.stderr
        return folder
    with Run(folder.parent) as run:
        for rank in run.start_ranks(ranks, [TRAINER, *args, "--devices", "cpu", "--output", folder]):
            done = run.finish(rank)
            assert done.status == 0, done.stderr
    return folder


def difference(one, other):
    """The largest difference of any tensor of two runs' last checkpoints, relative to its size."""
    ours, theirs = tensors(latest_checkpoint(one)), tensors(latest_checkpoint(other))
    names = {name for name in ours if not name.startswith("random")}
    assert names == {name for name in theirs if not name.startswith("random")}
    worst = 0.0
    for name in names:
        scale = np.abs(ours[name]).max() if ours[name].size else 0
        if scale > 0:
            worst = max(worst, np.abs(ours[name] - theirs[name]).max() / scale)
    return worst


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory):
    """The runs of one rank by their --set arguments, each trained once."""
    runs = {}

    def run(*args):
        if args not in runs:
            runs[args] = train(tmp_path_factory.mktemp("one") / "run", *MLP, *args)
        return runs[args]
    return run


# Steps of 60 samples: 1,437 make 23 of them and one of 57.
@pytest.mark.parametrize("ranks, args", [
    (2, sets(batch__global=60)),
    (3, sets(batch__global=60)),
    (2, sets(batch__global=61)),  # uneven in every step
    (3, sets(batch__global=64, batch__micro=5)),  # accumulation: 5 micro-batches
    (2, sets(batch__global=1436)),  # every other step has one sample: a rank has none
    (3, sets(batch__global=719, batch__micro=100)),
    (2, sets(batch__global=60, optimizer__name="adamw")),
    (3, sets(batch__global=60, optimizer__name="adamw", distributed__zero=True)),
    (2, sets(batch__global=60, optimizer__name="lamb", distributed__zero=True)),
    (2, sets(batch__global=60, distributed__zero=True, train__clip_norm=0.1)),
    (2, sets(batch__global=60, distributed__static_graph=True)),
    (2, sets(batch__global=64, batch__micro=10, distributed__static_graph=True)),  # accumulation
    (2, sets(batch__global=61, distributed__unused_parameters=True)),
    (2, sets(batch__global=60, distributed__bucket_mib=0.05)),
    (2, sets(batch__global=60, train__ema=0.9, distributed__zero=True)),
    # Updated parameters arrive in many buckets, while the next forward pass waits for each.
    (3, sets(batch__global=64, batch__micro=5, distributed__zero=True,
             distributed__bucket_mib=0.002)),
])
def test_ranks_learn_what_one_learns(one_rank, tmp_path, ranks, args):
    alone = one_rank(*without_distributed(args))
    together = train(tmp_path / "run", *MLP, *args, ranks=ranks)
    assert difference(alone, together) < 1e-9
    losses = [[line["loss"] for line in metrics(run) if "loss" in line]
              for run in (alone, together)]
    np.testing.assert_allclose(*losses, rtol=1e-6)  # written as float32
    assert [line for line in metrics(together) if "eval_top1" in line]


def without_distributed(args):
    pairs = zip(args[::2], args[1::2])
    return tuple(word for pair in pairs if not pair[1].startswith("distributed.") for word in pair)


def image_recipe(folder, model, samples):
    """4 steps of 12 images of 16x16, the last one with those that are left."""
    recipe = folder / "images.toml"
    library = f'library = "{TRAINER.parent / "narrow_resnet.so"}"' if model == "narrow_resnet18" else ""
    recipe.write_text(f"""
[model]
name = "{model}"
{library}
[data]
kind = "synthetic"
height = 16
width = 16
samples = {samples}
eval_samples = 16
[batch]
global = 12
[precision]
mode = "fp64"
[optimizer]
name = "sgd"
learning_rate = 0.01
[train]
steps = 4
[checkpoint]
every_steps = 100
[distributed]
sync_batch_norm = true
""")
    return recipe


# With 38 images a last step has 2, so that one of 3 ranks has none and yet takes part in the norms.
# (narrow_resnet18 ends in one pixel: norms over as few values as 2 would make roundings large.)
@pytest.mark.parametrize("model, ranks, samples", [("small_cnn", 3, 38), ("narrow_resnet18", 2, 43)])
def test_batch_norms_see_all_ranks_samples(tmp_path, model, ranks, samples):
    recipe = image_recipe(tmp_path, model, samples)
    alone = train(tmp_path / "one", "--recipe", recipe)
    together = train(tmp_path / "all", "--recipe", recipe, ranks=ranks)
    assert difference(alone, together) < 1e-9
    if model == "small_cnn":
        apart = train(tmp_path / "apart", "--recipe", recipe,
                      *sets(distributed__sync_batch_norm=False), ranks=ranks)
        assert difference(alone, apart) > 1e-6  # the test can fail


def test_norms_of_one_value_keep_finite_statistics(tmp_path):
    """The last step has one image, of which the last blocks see one pixel."""
    run = train(tmp_path / "run", "--recipe", image_recipe(tmp_path, "narrow_resnet18", 37), ranks=2)
    assert all(np.isfinite(tensor).all() for tensor in tensors(latest_checkpoint(run)).values())


@pytest.mark.parametrize("zero", [False, True])
def test_a_transformer_whose_layers_learn_at_rates_of_their_own(tmp_path, zero):
    recipe = image_recipe(tmp_path, "small_vit", 38)
    args = ["--recipe", recipe, *sets(distributed__sync_batch_norm=False, optimizer__layer_decay=0.5,
                                      optimizer__name="adamw", optimizer__weight_decay=0.1)]
    alone = train(tmp_path / "one", *args)
    together = train(tmp_path / "all", *args, *sets(distributed__zero=zero), ranks=3)
    assert difference(alone, together) < 1e-9


def test_recomputed_blocks_and_a_split_state_change_nothing(tmp_path):
    args = ["--recipe", image_recipe(tmp_path, "narrow_resnet18", 38), *sets(precision__mode="fp32")]
    kept = train(tmp_path / "kept", *args, ranks=3)
    twice = train(tmp_path / "twice", *args, *sets(train__recompute=["layer*"], distributed__zero=True), ranks=3)
    assert_same_tensors(latest_checkpoint(kept), latest_checkpoint(twice))


@pytest.mark.parametrize("number", ["bf16", "fp16"])
def test_compressed_gradients_are_rounded(one_rank, tmp_path, number):
    args = sets(batch__global=60)
    alone = one_rank(*args)
    together = train(tmp_path / "run", *MLP, *args, *sets(distributed__compress=number), ranks=2)
    assert 1e-9 < difference(alone, together) < 0.05


def test_a_checkpoint_serves_any_number_of_ranks(one_rank, tmp_path):
    # A constant rate: other schedules stretch to the number of steps, which differs by part.
    args = sets(batch__global=60, optimizer__name="adamw", schedule__name="constant")
    run = tmp_path / "run"
    zero = sets(distributed__zero=True)
    for ranks, steps, more in ((3, 7, zero), (2, 11, zero), (1, 15, []), (2, STEPS, zero)):
        train(run, *MLP, *args, *more, *sets(train__steps=steps), "--resume", "auto", ranks=ranks)
    assert difference(one_rank(*args), run) < 1e-9


def test_shares_by_throughput_change_no_sum(one_rank, tmp_path):
    args = sets(batch__global=61, train__steps=90)
    alone = one_rank(*args)
    run = tmp_path / "run"
    done = trainer(*MLP, *args, *sets(distributed__balance="throughput"), "--devices", "cpu,cpu,cpu",
                   "--output", run)
    assert done.returncode == 0, done.stderr
    assert difference(alone, run) < 1e-9
    assert "balance: from step" in done.stderr  # one core each for three ranks is never quite fair


@pytest.mark.parametrize("recipe", ["mlp", "narrow_resnet18"])
def test_first_gradients_in_float32(tmp_path, recipe):
    """The momentum of SGD after one step is the gradient."""
    args = MLP if recipe == "mlp" else ["--recipe", image_recipe(tmp_path, "narrow_resnet18", 43)]
    args = [*args, *sets(precision__mode="fp32", train__steps=1)]
    alone = tensors(latest_checkpoint(train(tmp_path / "one", *args)))
    together = tensors(latest_checkpoint(train(tmp_path / "two", *args, ranks=2)))
    for name in alone:
        if name.startswith("optimizer/momentum."):
            scale = np.abs(alone[name]).max()
            assert np.abs(alone[name] - together[name]).max() <= 1e-4 * scale, name
