"""What a user sees of a training run."""
import json
import re
import signal

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trainer import (DIGITS, assert_same_tensors, evaluations, latest_checkpoint, metrics, sets, start,
                     tensors, trainer)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """One run of the README's recipe as it stands."""
    run = tmp_path_factory.mktemp("digits") / "run"
    result = trainer("--recipe", DIGITS, "--output", run)
    assert result.returncode == 0, result.stderr
    return run, result


def test_digits_reaches_97_percent(digits):
    run, _ = digits
    assert evaluations(run)[-1]["eval_top1"] >= 97.0


def test_the_run_folder_holds_what_is_promised(digits):
    run, _ = digits
    for name in ("recipe.toml", "run.json", "metrics.jsonl", "checkpoints/latest", "checkpoints/best"):
        assert (run / name).is_file(), name
    record = json.loads((run / "run.json").read_text())
    assert record["versions"]["libtorch"] == "2.11.0"
    assert str(run) in record["command"]
    assert {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"} <= {
        path.name for path in latest_checkpoint(run).iterdir()}


def test_phases_of_every_line_sum_to_its_wall_time(digits):
    run, _ = digits
    lines = [line for line in metrics(run) if "loss" in line]
    assert len(lines) > 10
    for line in lines:
        assert sum(line["phases_s"].values()) == pytest.approx(line["step_s"], rel=0.005)


def test_work_on_data_beside_the_phases_is_shown(digits, tmp_path):
    def overlapped(run):
        lines = [line["overlapped_s"] for line in metrics(run) if "loss" in line]
        assert lines and all(set(line) == {"decode", "decode_cpu", "decode_wall", "copy"} for line in lines)
        assert all(line["decode_wall"] <= line["decode"] + 1e-9 for line in lines)
        assert all(line["copy"] == 0 for line in lines)  # the CPU copies nothing ahead
        return [line["decode"] for line in lines]

    run, _ = digits
    assert sum(overlapped(run)) > 0
    result = trainer("--recipe", DIGITS, "--output", tmp_path / "run", *sets(data__workers=0, train__steps=20))
    assert result.returncode == 0, result.stderr
    assert set(overlapped(tmp_path / "run")) == {0}


def test_tensorboard_reads_the_event_file(digits):
    run, _ = digits
    events = EventAccumulator(str(run))
    events.Reload()
    logged = [line["loss"] for line in metrics(run) if "loss" in line]
    read = [scalar.value for scalar in events.Scalars("train/loss")]
    assert read == pytest.approx(logged, rel=1e-6)
    assert events.Scalars("eval/top1")[-1].value == pytest.approx(evaluations(run)[-1]["eval_top1"])


def test_histograms_of_gradients_on_request(tmp_path):
    result = trainer("--recipe", DIGITS, "--output", tmp_path / "run",
                     *sets(train__steps=20, telemetry__histograms_every_steps=5))
    assert result.returncode == 0, result.stderr
    events = EventAccumulator(str(tmp_path / "run"), size_guidance={"histograms": 0})
    events.Reload()
    sizes = {name.removeprefix("model/"): tensor.size for name, tensor in
             tensors(latest_checkpoint(tmp_path / "run")).items() if name.startswith("model/")}
    assert sorted(events.Tags()["histograms"]) == sorted(f"gradients/{name}" for name in sizes)
    for name, size in sizes.items():
        found = events.Histograms(f"gradients/{name}")
        assert [event.step for event in found] == [5, 10, 15, 20]
        for value in (event.histogram_value for event in found):
            assert value.num == sum(value.bucket) == size
            assert value.min < 0 < value.max < 10


def test_histograms_without_an_event_file_are_said_to_have_no_effect(tmp_path):
    result = trainer("--recipe", DIGITS, "--dry-run", "--output", tmp_path,
                     *sets(telemetry__histograms_every_steps=5, telemetry__tensorboard=False))
    assert "telemetry.histograms_every_steps has no effect" in result.stderr


def test_the_console_shows_the_loss_of_the_step_that_it_names(digits):
    run, result = digits
    recorded = {line["step"]: line["loss"] for line in metrics(run) if "loss" in line}
    shown = {int(step): float(loss) for step, loss in re.findall(r"step (\d+)/\d+ .* loss ([\d.]+)", result.stderr)}
    assert max(recorded) in shown
    for step in recorded.keys() & shown.keys():
        assert shown[step] == pytest.approx(recorded[step], abs=6e-5), step


def test_several_ranks_tell_of_a_step_before_the_evaluation_after_it(tmp_path):
    done = trainer("--recipe", DIGITS, "--devices", "cpu,cpu", "--output", tmp_path / "run", *sets(train__steps=3))
    assert done.returncode == 0, done.stderr
    assert 0 < done.stderr.index("step 3/3") < done.stderr.index("evaluation  loss"), done.stderr


def test_plain_lines_without_a_terminal(digits):
    _, result = digits
    assert "\x1b" not in result.stderr
    assert "\r" not in result.stderr
    assert "top1" in result.stderr


def test_the_resolved_recipe_runs_again_to_the_same_weights(digits, tmp_path):
    run, _ = digits
    again = tmp_path / "again"
    result = trainer("--recipe", run / "recipe.toml", "--output", again, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert (again / "recipe.toml").read_text() == (run / "recipe.toml").read_text()
    assert_same_tensors(latest_checkpoint(run), latest_checkpoint(again))


def test_accumulated_micro_batches_give_the_same_result(tmp_path):
    """64 = 3 unequal parts (22, 21, 21), and the last batch of the epoch is short."""
    weights = []
    for micro in ("auto", 22):
        run = tmp_path / f"micro-{micro}"
        result = trainer("--recipe", DIGITS, "--output", run,
                         *sets(batch__micro=micro, precision__mode="fp32", train__epochs=1))
        assert result.returncode == 0, result.stderr
        weights.append(tensors(latest_checkpoint(run)))
    for name, whole in weights[0].items():
        if name.startswith("model/"):
            assert whole == pytest.approx(weights[1][name], rel=1e-3, abs=1e-5), name


def test_workers_do_not_change_what_is_learned(tmp_path):
    for workers in (0, 3):
        result = trainer("--recipe", DIGITS, "--output", tmp_path / str(workers),
                         *sets(data__workers=workers, train__epochs=2))
        assert result.returncode == 0, result.stderr
    assert_same_tensors(latest_checkpoint(tmp_path / "0"), latest_checkpoint(tmp_path / "3"))


def test_deterministic_runs_share_every_bit(tmp_path):
    # Run c ends after two steps at first, and continues.
    for run, steps, workers in (("a", 6, 0), ("b", 6, 3), ("c", 2, 1), ("c", 6, 2)):
        result = trainer("--recipe", DIGITS, "--output", tmp_path / run, "--resume", "auto",
                         *sets(run__deterministic=True, model__name="small_cnn", train__steps=steps,
                               schedule__steps=6, telemetry__every_steps=1, precision__mode="bf16",
                               data__workers=workers))
        assert result.returncode == 0, result.stderr
    losses = [[line["loss"] for line in metrics(tmp_path / run) if "loss" in line] for run in "abc"]
    assert len(losses[0]) == 6 and losses[0] == losses[1] == losses[2]
    for run in "bc":
        assert_same_tensors(latest_checkpoint(tmp_path / "a"), latest_checkpoint(tmp_path / run))


def test_dry_run_shows_the_plan_and_leaves_nothing(tmp_path):
    result = trainer("--recipe", DIGITS, "--output", tmp_path / "run", "--dry-run")
    assert result.returncode == 0, result.stderr
    assert "85,002 parameters" in result.stderr
    assert not (tmp_path / "run").exists()


def test_options_without_effect_are_said_aloud(tmp_path):
    result = trainer("--recipe", DIGITS, "--dry-run",
                     *sets(precision__mode="tf32", train__steps=3, train__epochs=1, train__cuda_graph=True,
                           device__select="cpu"))
    assert 'tf32 has no effect on a CPU' in result.stderr
    assert "train.cuda_graph has no effect: the device is no GPU" in result.stderr
    assert "train.epochs has no effect" in result.stderr


def test_checkpoints_kept_are_the_newest_and_the_best(tmp_path):
    run = tmp_path / "run"
    result = trainer("--recipe", DIGITS, "--output", run,
                     *sets(train__steps=50, checkpoint__every_steps=10, checkpoint__keep=2))
    assert result.returncode == 0, result.stderr
    names = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
    best = (run / "checkpoints" / "best").read_text().strip()
    assert set(names) == {"step-00000040", "step-00000050", best}


@pytest.mark.parametrize("rate, best_epoch", [(1e-7, 3), (0, 1)])
def test_of_equal_accuracies_the_lower_loss_is_best_and_else_the_earlier(tmp_path, rate, best_epoch):
    job = ["--recipe", DIGITS, *sets(optimizer__learning_rate=rate, schedule__name="constant", eval__every_epochs=1,
                                     precision__mode="fp32", precision__fused=True)]
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    for run, epochs in ((whole, 3), (resumed, 2), (resumed, 3)):
        result = trainer(*job, *sets(train__epochs=epochs), "--output", run, "--resume", "auto")
        assert result.returncode == 0, result.stderr
    for run in (whole, resumed):
        lines = evaluations(run)
        assert len(lines) == 3 and len({line["eval_top1"] for line in lines}) == 1
        losses = [line["eval_loss"] for line in lines]
        assert losses == sorted(losses, reverse=True) and len(set(losses)) == (3 if rate else 1)
        best = (run / "checkpoints" / "best").read_text().strip()
        assert best == f"step-{best_epoch * 23:08}"
        assert json.loads((latest_checkpoint(run) / "state.json").read_text())["best_loss"] == losses[best_epoch - 1]


@pytest.mark.parametrize("mode", ["bf16", "fp16"])
def test_mixed_precision_trains(tmp_path, mode):
    run = tmp_path / mode
    result = trainer("--recipe", DIGITS, "--output", run, *sets(precision__mode=mode, train__epochs=10))
    assert result.returncode == 0, result.stderr
    assert evaluations(run)[-1]["eval_top1"] >= 90.0


def test_a_loss_that_is_not_finite_stops_with_status_7(tmp_path):
    run = tmp_path / "run"
    result = trainer("--recipe", DIGITS, "--output", run,
                     *sets(optimizer__learning_rate=1e30, precision__mode="fp32",
                           checkpoint__every_steps=1))
    assert result.returncode == 7, result.stderr
    assert "error[numeric]: " in result.stderr
    for checkpoint in (run / "checkpoints").glob("step-*"):
        for name, array in tensors(checkpoint).items():
            if name.startswith("model/"):
                assert not (array != array).any(), f"{checkpoint.name} holds NaN in {name}"


def test_skipping_steps_that_are_not_finite_goes_on(tmp_path):
    run = tmp_path / "run"
    result = trainer("--recipe", DIGITS, "--output", run,
                     *sets(optimizer__learning_rate=1e30, precision__mode="fp32", train__on_nan="skip",
                           train__epochs=2))
    assert result.returncode == 0, result.stderr
    assert "steps were skipped" in result.stderr
    assert metrics(run)[-1]["step"] == 46


def test_a_skipped_step_leaves_running_statistics_as_they_were(tmp_path):
    run = tmp_path / "run"
    result = trainer("--recipe", DIGITS, "--output", run,
                     *sets(model__name="resnet18", optimizer__learning_rate=1e30, precision__mode="fp32",
                           train__on_nan="skip", train__steps=3, schedule__name="constant", eval__enabled=False))
    assert result.returncode == 0, result.stderr
    assert "2 steps were skipped" in result.stderr
    saved = tensors(latest_checkpoint(run))
    assert (saved["model/bn1.num_batches_tracked"] == 1).all()


def test_a_second_signal_stops_at_once_and_harms_no_file(tmp_path):
    run = tmp_path / "run"
    process = start("--recipe", DIGITS, "--output", run,
                    *sets(train__epochs=100000, checkpoint__every_steps=1, checkpoint__keep=2))
    while not (run / "checkpoints" / "latest").exists():
        assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    process.stderr.close()
    assert process.returncode in (75, 128 + signal.SIGINT, 128 + signal.SIGTERM)
    result = trainer("--recipe", DIGITS, "--output", run, "--resume", "auto",
                     *sets(train__epochs=100000, checkpoint__every_steps=1, checkpoint__keep=2),
                     "--dry-run")
    assert result.returncode == 0, result.stderr


def test_a_run_of_nothing_but_steps(tmp_path):
    run = tmp_path / "run"
    result = trainer("--recipe", DIGITS, "--output", run, *sets(train__steps=30, eval__enabled=False,
                                                                checkpoint__enabled=False))
    assert result.returncode == 0, result.stderr
    assert "done: 30 steps;" in result.stderr and "0 evaluation samples" in result.stderr
    assert evaluations(run) == [] and list((run / "checkpoints").iterdir()) == []
    assert [line["step"] for line in metrics(run)] == [10, 20, 30]


def test_the_last_step_has_its_line(tmp_path):
    result = trainer("--recipe", DIGITS, "--output", tmp_path / "run", *sets(train__steps=13, eval__enabled=False))
    assert result.returncode == 0, result.stderr
    assert [line["step"] for line in metrics(tmp_path / "run")] == [10, 13]


def test_a_run_begins_at_once_however_many_samples_there_are(tmp_path):
    recipe = tmp_path / "many.toml"
    recipe.write_text("""
train.steps = 1
batch.global = 8
[model]
name = "mlp"
hidden = 8
[data]
kind = "synthetic"
height = 8
width = 8
classes = 4
samples = 1000000000000
eval_samples = 0
[optimizer]
name = "sgd"
learning_rate = 0.1
""")
    result = trainer("--recipe", recipe, "--output", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert "done: 1 step" in result.stderr


def test_the_first_steps_of_a_longer_schedule(tmp_path):
    def rates(name, **more):
        result = trainer("--recipe", DIGITS, "--output", tmp_path / name, *sets(
            train__steps=20, schedule__warmup=2, telemetry__every_steps=1, eval__enabled=False,
            checkpoint__enabled=False, **more))
        assert result.returncode == (0 if more else 2), result.stderr
        return [line["learning_rate"] for line in metrics(tmp_path / name)] if more else result.stderr

    assert "schedule.warmup is longer than the run" in rates("short")
    long = rates("long", schedule__steps=460)
    assert len(long) == 20 and long == sorted(long) and long[-1] < 0.05


def test_clipping_bounds_what_a_step_changes(tmp_path):
    """By plain gradient descent: the learning rate times the norm, over all parameters."""
    def after_a_step(name, **values):
        done = trainer("train", "--recipe", DIGITS, "--output", tmp_path / name, *sets(
            train__steps=1, optimizer__name="sgd", optimizer__momentum=0, optimizer__weight_decay=0, schedule__warmup=0,
            precision__mode="fp32", eval__enabled=False, **values))
        assert done.returncode == 0, done.stderr
        return {key: value.astype("f8") for key, value in tensors(latest_checkpoint(tmp_path / name)).items()
                if key.startswith("model/")}

    before = after_a_step("before", optimizer__learning_rate=0)

    def change(name, norm):
        after = after_a_step(name, optimizer__learning_rate=0.5, train__clip_norm=norm)
        return np.sqrt(sum(np.square(after[key] - before[key]).sum() for key in before)) / 0.5

    assert change("clipped", 0.01) == pytest.approx(0.01, rel=1e-3)
    assert 0.1 < change("unclipped", 100) < 100
