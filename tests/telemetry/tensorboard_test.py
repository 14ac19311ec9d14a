"""TensorBoard's own reader reads our event files: whole, cut back, and torn at every byte."""
import os
import pathlib
import struct
import subprocess

import pytest
from tensorboard.backend.event_processing import event_accumulator

TOOL = pathlib.Path(os.environ["BRIM_BIN_DIR"]) / "telemetry_tool"


def tool(*args):
    subprocess.run([TOOL, *map(str, args)], check=True)


def load(folder):
    accumulator = event_accumulator.EventAccumulator(
        str(folder), size_guidance={event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0})
    accumulator.Reload()
    return accumulator


def only_file(folder):
    (path,) = pathlib.Path(folder).iterdir()
    return path


def test_scalars_and_text_arrive(tmp_path):
    tool("events", tmp_path, 1, 100)
    found = load(tmp_path)
    assert found.Tags()["scalars"] == ["train/loss", "train/learning_rate"]
    assert found.file_version == 2.0
    losses = found.Scalars("train/loss")
    assert [event.step for event in losses] == list(range(1, 101))
    assert [event.value for event in losses] == pytest.approx([1 / s for s in range(1, 101)], rel=1e-6)
    assert [event.wall_time for event in losses] == [1000.0 + s for s in range(1, 101)]
    (text,) = found.Tensors("recipe")
    assert text.tensor_proto.string_val[0].decode() == "# Größe\n\n`lr = 0.1`"
    assert found.SummaryMetadata("recipe").plugin_data.plugin_name == "text"


def test_a_step_beyond_32_bits(tmp_path):
    tool("events", tmp_path, 2**40, 2**40 + 1)
    assert [event.step for event in load(tmp_path).Scalars("train/loss")] == [2**40, 2**40 + 1]


def test_resume_leaves_one_unbroken_curve(tmp_path):
    tool("events", tmp_path, 1, 10)
    tool("cut_events", tmp_path, 6)
    assert [e.step for e in load(tmp_path).Scalars("train/loss")] == list(range(1, 7))
    tool("events", tmp_path, 7, 12)
    assert len(list(tmp_path.iterdir())) == 2
    assert [e.step for e in load(tmp_path).Scalars("train/loss")] == list(range(1, 13))


def record_starts(content):
    starts, at = [], 0
    while at < len(content):
        starts.append(at)
        at += 8 + 4 + struct.unpack_from("<Q", content, at)[0] + 4
    return starts


def test_a_file_torn_anywhere_in_its_last_record_is_repaired(tmp_path):
    tool("events", tmp_path, 1, 3)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    last = record_starts(whole)[-1]  # the learning rate of step 3
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        tool("cut_events", tmp_path, 100)
        assert path.read_bytes() == whole[:last], cut
        found = load(tmp_path)
        assert [e.step for e in found.Scalars("train/loss")] == [1, 2, 3]
        assert [e.step for e in found.Scalars("train/learning_rate")] == [1, 2]
