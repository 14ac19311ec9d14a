"""Ranks that keep a part of a model read that part of model.pretrained, whoever reads the rest."""
import json
import math
import re
import shutil

import pytest
from safetensors.numpy import load_file, save_file

from runs import TRAINER, run, with_fault  # noqa: F401
from test_same_maths import train
from trainer import latest_checkpoint, sets

RECIPE = """
[model]
name = "gpt"
layers = 4
heads = 4
width = 256
[data]
kind = "synthetic_tokens"
samples = 8
length = 16
vocabulary = 512
[batch]
global = 4
micro = 1
[optimizer]
name = "sgd"
learning_rate = 0
[train]
steps = 1
task = "language_modeling"
[eval]
enabled = false
[device]
select = "cpu"
"""
PAGE = 4096
SMALL = 64 << 10  # tensors of fewer bytes are read by all


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "recipe.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def weights(recipe, tmp_path):
    """A file of each test's own, beside which it is written what is read of it."""
    one = recipe.parent / "one"
    if not one.exists():
        train(one, "--recipe", recipe)
    return shutil.copy(latest_checkpoint(one) / "model.safetensors", tmp_path / "weights.safetensors")


def large_tensors(file):
    """Where each begins and ends in the file, by name."""
    with file.open("rb") as bytes_:
        size = int.from_bytes(bytes_.read(8), "little")
        header = json.loads(bytes_.read(size))
    header.pop("__metadata__", None)
    places = {name: [8 + size + offset for offset in entry["data_offsets"]] for name, entry in header.items()}
    large = {name: (begin, end) for name, (begin, end) in places.items() if end - begin >= SMALL}
    assert len(large) == 4 * 4 + 1
    return large


def read_share(file, rank, begin, end):
    """Which share of the whole pages between two places that rank has read."""
    pages = (file.parent / f"{file.name}.pages-{rank}").read_bytes()[math.ceil(begin / PAGE):end // PAGE]
    return sum(pages) / len(pages)


def start(run, recipe, weights, folder, **how):  # noqa: F811
    """Two ranks, whose weights stay those of the file."""
    command = [TRAINER, "--recipe", recipe, *sets(model__pretrained=str(weights), **how), "--output", folder]
    results = [run.finish(rank) for rank in run.start_ranks(2, with_fault(command, f"where=pages,file={weights}"))]
    assert [result.status for result in results] == [0, 0], results[0].stderr
    ours, theirs = load_file(latest_checkpoint(folder) / "model.safetensors"), load_file(weights)
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs)


def test_a_stage_reads_its_parts(recipe, weights, run, tmp_path):  # noqa: F811
    start(run, recipe, weights, tmp_path / "run", distributed__stages=2, run__seed=5, distributed__cut=["transformer.h.1"])
    for name, place in large_tensors(weights).items():
        ranks = {"transformer.wte.weight": (1, 1)}.get(name, (1, 0) if ".h.0." in name else (0, 1))
        assert tuple(read_share(weights, rank, *place) for rank in range(2)) == ranks, name


def test_a_rank_of_fsdp_reads_its_rows(recipe, weights, run, tmp_path):  # noqa: F811
    """And the first, of less than a page, which all compare."""
    start(run, recipe, weights, tmp_path / "run", distributed__strategy="fsdp", run__seed=5)
    for name, (begin, end) in large_tensors(weights).items():
        middle = (begin + end) // 2
        halves = [[read_share(weights, rank, *half) for half in ((begin + PAGE, middle), (middle, end))] for rank in range(2)]
        assert halves == [[1, 0], [0, 1]], name


@pytest.mark.parametrize("how", [{}, {"distributed__shards": 2}])
def test_ranks_of_fsdp_with_different_files_are_refused(how, recipe, weights, run, tmp_path):  # noqa: F811
    """Under one path, as on hosts of which each has its own copy."""
    world = 2 * how.get("distributed__shards", 1)
    values = sets(model__pretrained=f"/proc/self/cwd/{weights.name}", distributed__strategy="fsdp", **how)
    other = tmp_path / "other"
    other.mkdir()
    save_file({name: tensor + 1 for name, tensor in load_file(weights).items()}, other / weights.name)
    commands = [["env", f"--chdir={folder}", TRAINER, "--recipe", recipe, *values, "--output", tmp_path / "run"]
                for folder in [*[weights.parent] * (world - 1), other]]
    results = [run.finish(rank) for rank in run.start_ranks(world, commands)]
    assert [result.status for result in results] == [6] * world
    said = "".join(result.stderr for result in results)
    assert re.search(rf"rank {world - 1}'s model differs from rank 0's: .* has other values", said), said
