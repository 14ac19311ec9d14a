"""TensorBoard's own reader reads our event files: whole, cut back, and torn at every byte."""
import os
import pathlib
import struct
import subprocess

import pytest
from google.protobuf import json_format
from tensorboard import context as request_context
from tensorboard.backend.event_processing import data_provider, event_accumulator
from tensorboard.backend.event_processing import plugin_event_multiplexer as event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.util import tensor_util
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

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
    (text,) = found.Tensors("notes")
    assert text.tensor_proto.string_val[0].decode() == "# Größe\n\n`lr = 0.1`"
    assert found.SummaryMetadata("notes").plugin_data.plugin_name == "text"


def test_a_histogram_arrives(tmp_path):
    tool("histogram", tmp_path)
    (event,) = load(tmp_path).Histograms("gradients/fc.weight")
    value = event.histogram_value
    assert event.step == 7
    assert (value.min, value.max, value.num, value.sum, value.sum_squares) == (-2, 3, 6, 1.5, 20.25)
    # What its dashboard asks for: rows of left, right, count.
    multiplexer = event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    (shown,) = multiplexer.Tensors(".", "gradients/fc.weight")
    rows = tensor_util.make_ndarray(shown.tensor_proto)
    assert rows.tolist() == [[-2, -1, 1], [-1, 0, 2], [0, 2, 2], [2, 3, 1]]


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


RECIPE = """[model]
name = "mlp"
hidden = 8
[optimizer]
learning_rate = 0.125
nesterov = true
[train]
recompute = ["a", "b"]
"""


def sessions(folder):
    """The runs of a folder of runs, as TensorBoard's tab of hyperparameters gets them."""
    multiplexer = event_multiplexer.EventMultiplexer(tensor_size_guidance={"hparams": 0})
    multiplexer.AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    context = base_plugin.TBContext(logdir=str(folder), multiplexer=multiplexer,
                                    data_provider=data_provider.MultiplexerDataProvider(multiplexer, str(folder)))
    backend = backend_context.Context(context)
    request = request_context.RequestContext()
    metadata = backend.hparams_metadata(request, "")
    experiment = backend.experiment_from_metadata(request, "", True, metadata, [])
    asked = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=10, allowed_statuses=[api_pb2.STATUS_SUCCESS, api_pb2.STATUS_RUNNING],
        col_params=[api_pb2.ColParams(metric=metric.name) for metric in experiment.metric_infos])
    found = list_session_groups.Handler(request, backend, "", asked).run()
    return experiment, found.session_groups


def test_the_recipe_is_there_as_text_and_as_hyperparameters(tmp_path):
    (tmp_path / "recipe.toml").write_text(RECIPE)
    for run in "a", "b":
        (tmp_path / "runs" / run).mkdir(parents=True)
        tool("recipe", tmp_path / "runs" / run, tmp_path / "recipe.toml")
    (text,) = load(tmp_path / "runs" / "a").Tensors("recipe")
    assert text.tensor_proto.string_val[0].decode() == f"```toml\n{RECIPE}\n```"
    experiment, groups = sessions(tmp_path / "runs")
    assert {info.name for info in experiment.hparam_infos} >= {"optimizer.learning_rate", "model.name"}
    assert [metric.name.tag for metric in experiment.metric_infos] == ["eval/top1"]
    assert len(groups) == 2
    for group in groups:
        assert {name: json_format.MessageToDict(value) for name, value in group.hparams.items()} == {
            "model.name": "mlp", "model.hidden": 8, "optimizer.learning_rate": 0.125, "optimizer.nesterov": True}
        (session,) = group.sessions
        assert session.status == api_pb2.STATUS_SUCCESS and session.end_time_secs >= session.start_time_secs > 1e9
        assert [value.value for value in session.metric_values] == [97.5]


def test_a_recipe_that_cannot_be_read_is_text_alone(tmp_path):
    (tmp_path / "recipe.toml").write_text("= broken")
    (tmp_path / "run").mkdir()
    tool("recipe", tmp_path / "run", tmp_path / "recipe.toml")
    assert "= broken" in load(tmp_path / "run").Tensors("recipe")[0].tensor_proto.string_val[0].decode()


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
