"""distributed.zero = true: the optimizer's state takes its share of a rank's memory and no more, as
the kernel counts it."""
import os

import pytest

from runs import TRAINER, by_file, run  # noqa: F401

RECIPE = """
[model]
name = "mlp"
hidden = 2896
depth = 3
[data]
kind = "synthetic"
samples = 64
height = 8
width = 8
[batch]
global = 8
[precision]
mode = "fp32"
[optimizer]
name = "{optimizer}"
[train]
steps = 3
[eval]
enabled = false
[checkpoint]
enabled = false
[device]
select = "cpu"
"""
MIB = 1 << 20
PARAMETERS_MIB = 4 * (192 * 2896 + 2 * 2896 * 2896 + 10 * 2896) / MIB


def peaks_mib(run, tmp_path, world, optimizer, zero, *options):
    """The most memory that each rank has had."""
    recipe = tmp_path / f"{optimizer}.toml"
    recipe.write_text(RECIPE.format(optimizer=optimizer))
    command = [TRAINER, "--recipe", recipe, "--output", tmp_path / f"{world}-{optimizer}-{zero}-{len(options)}",
               "--set", f"distributed.zero={zero}", *options]
    peaks = []
    for process in run.start_ranks(world, command, by_file(tmp_path)):
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, run.finish(process).stderr
        peaks.append(used.ru_maxrss / 1024)
    return peaks


# Tensors of a parameter's size that the optimizer keeps.
@pytest.mark.parametrize("world, optimizer, tensors", [(2, "adamw", 2), (2, "sgd", 1), (4, "adamw", 2)])
def test_each_rank_has_its_share(world, optimizer, tensors, run, tmp_path):  # noqa: F811
    whole = peaks_mib(run, tmp_path, world, optimizer, "false")
    share = peaks_mib(run, tmp_path, world, optimizer, "true")
    saved = tensors * PARAMETERS_MIB * (1 - 1 / world)
    assert max(share) < min(whole) - 0.8 * saved, f"off {whole}, on {share}; expected {saved:.0f} MiB less"


# Rank 0 copies the model for the thread that writes it; the optimizer's state goes to the disk as it comes.
def test_a_checkpoint_takes_no_copy_of_the_optimizers_state(run, tmp_path):  # noqa: F811
    resting = peaks_mib(run, tmp_path, 2, "adamw", "true")
    saving = peaks_mib(run, tmp_path, 2, "adamw", "true", "--set", "checkpoint.enabled=true")
    assert saving[0] < resting[0] + 1.6 * PARAMETERS_MIB, f"{resting}, while saving {saving}"
    assert saving[1] < resting[1] + 0.6 * PARAMETERS_MIB, f"{resting}, while saving {saving}"


# Each rank reads the model and its own rows of the optimizer's state.
def test_resuming_takes_a_ranks_share(run, tmp_path):  # noqa: F811
    resting = peaks_mib(run, tmp_path, 2, "adamw", "true")
    peaks_mib(run, tmp_path, 2, "adamw", "true", "--set", "checkpoint.enabled=true")
    saved = tmp_path / "2-adamw-true-2"
    resuming = peaks_mib(run, tmp_path, 2, "adamw", "true", "--set", "checkpoint.enabled=true", "--resume", saved,
                         "--set", "train.steps=6")
    assert max(resuming) < max(resting) + 1.6 * PARAMETERS_MIB, f"{resting}, resuming {resuming}"
