"""trainer audit against the samples that a dataset of the tests has really read: on one rank and on several,
over crashes, restarts and other numbers of ranks."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

import pytest

from test_bad_input import reseal
from test_data import folder_recipe
from trainer import (DIGITS, LIMIT_S, TRAINER, ForkServer, environment, latest_checkpoint, metrics, sets, start,
                     trainer)

LIBRARY = TRAINER.parent / "logged_dataset.so"
OLD_RUN = os.path.join(os.path.dirname(__file__), "version_0_1", "run")
SIZE, GLOBAL = 100, 16
STEPS_AN_EPOCH = 7  # the last with 4 samples
RECIPE = f"""[run]
seed = 7
[model]
library = "{LIBRARY}"
name = "mlp"
hidden = 4
depth = 1
[data]
kind = "logged"
samples = {SIZE}
workers = 0
[batch]
global = {GLOBAL}
micro = 4
[optimizer]
name = "sgd"
learning_rate = 0.01
[train]
epochs = 3
[telemetry]
every_steps = 1
tensorboard = false
"""


def even(count, ranks):
    """Samples of each rank, the larger shares first."""
    return [count // ranks + (rank < count % ranks) for rank in range(ranks)]


def even_pairs(count, ranks):
    shares = [2 * pairs for pairs in even(count // 2, ranks)]
    shares[-1] += count % 2
    return shares


class Run:
    """A run of one process after the other, each with a log of its own."""

    def __init__(self, folder, **values):
        folder.mkdir(exist_ok=True)
        self.folder = folder / "run"
        self.recipe = folder / "recipe.toml"
        self.recipe.write_text(RECIPE)
        self.values = values
        self.logs = []
        self.seen = {}  # step: each rank's samples, of the steps that the weights are made of
        self.drop_last = values.get("data__drop_last", False)
        self.cut = even_pairs if "data__augment__mixup" in values else even

    def command(self, ranks, **values):
        saved = latest_checkpoint(self.folder).name if (self.folder / "checkpoints/latest").exists() else "step-0"
        self.logs.append((int(saved.split("-")[1]), ranks, self.folder.parent / f"log-{len(self.logs)}"))
        return ["--recipe", self.recipe, "--output", self.folder, "--resume", "auto", "--devices",
                ",".join(["cpu"] * ranks), *sets(data__log=str(self.logs[-1][2]), **self.values, **values)]

    def train(self, ranks=1, status=0, **values):
        done = trainer(*self.command(ranks, **values))
        assert done.returncode == status, done.stderr
        self.take_reads()

    def kill_after_a_checkpoint(self, ranks=1, **values):
        """Kills it once metrics.jsonl has steps that no checkpoint has; returns the last of them."""
        command = self.command(ranks, data__delay_ms=10, **values)
        process = subprocess.Popen([TRAINER, *map(str, command)], env=environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        end = time.monotonic() + LIMIT_S
        while not self.has_steps_beyond_a_checkpoint():
            assert process.poll() is None and time.monotonic() < end, process.stderr.read()
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.wait_until_unlocked()
        self.take_reads()
        return logged_steps(self.folder)[-1]

    def has_steps_beyond_a_checkpoint(self):
        if not (self.folder / "checkpoints/latest").exists() or not (self.folder / "metrics.jsonl").exists():
            return False
        saved = int(latest_checkpoint(self.folder).name.split("-")[1])
        return saved > self.logs[-1][0] and logged_steps(self.folder)[-1:] > [saved]

    def wait_until_unlocked(self):
        """Ranks that trainer started are killed with it, but a moment later."""
        end = time.monotonic() + LIMIT_S
        while subprocess.run(["flock", "--nonblock", self.folder / "lock", "true"]).returncode != 0:
            assert time.monotonic() < end
            time.sleep(0.01)

    def batch(self, step):
        return min(GLOBAL, SIZE - (step - 1) % self.steps_an_epoch() * GLOBAL)

    def steps_an_epoch(self):
        return STEPS_AN_EPOCH - self.drop_last

    def take_reads(self):
        """What the newest log says of each step. A step that not every rank has finished is none."""
        first, ranks, folder = self.logs[-1]
        reads = [(folder / f"rank-{rank}").read_text().split("\n")[:-1] for rank in range(ranks)]
        self.seen = {step: samples for step, samples in self.seen.items() if step <= first}
        step = first
        while any(reads):
            step += 1
            shares = self.cut(self.batch(step), ranks)
            if any(len(own) < share for own, share in zip(reads, shares)):
                break
            self.seen[step] = {rank: [int(one) for one in own[:share]]
                               for rank, (own, share) in enumerate(zip(reads, shares)) if share}
            reads = [own[share:] for own, share in zip(reads, shares)]

    def check_against_reads(self):
        """Every step's samples, of each rank, in their order."""
        assert max(self.seen) == audit(self.folder)["step"]
        for step, by_rank in self.seen.items():
            ours = {}
            for place in audit(self.folder, "--step", step)["samples_of_step"]:
                assert place["step"] == step and place["epoch"] == (step - 1) // self.steps_an_epoch()
                ours.setdefault(place["rank"], []).append(place["sample"])
            assert ours == by_rank, step

    def places_of(self, sample):
        return [(step, rank) for step, by_rank in sorted(self.seen.items())
                for rank, samples in by_rank.items() for one in samples if one == sample]


def logged_steps(run):
    lines = (run / "metrics.jsonl").read_text().split("\n")[:-1]
    return [line["step"] for line in map(json.loads, lines) if "loss" in line]


def audit(*args):
    done = trainer("audit", *args, "--json")
    assert done.returncode in (0, 3) and "error" not in done.stderr, done.stderr
    result = json.loads(done.stdout)
    assert result["exactly_once"] == (done.returncode == 0)
    return result


def text_of(status, *args):
    done = trainer("audit", *args)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def parts(result):
    return [(part["after_step"], part["ranks"]) for part in result["parts"]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = Run(tmp_path_factory.mktemp("finished"))
    run.train()
    return run


def test_one_process(finished):
    result = audit(finished.folder)
    assert result["exactly_once"] and result["replaced"] == result["repeated"] == []
    assert [(one["first"], one["last"], one["seen"]) for one in result["epochs"]] == [(0, 2, SIZE)]
    finished.check_against_reads()
    text = text_of(0, finished.folder)
    assert "seen       epochs 1–3: 100 samples in each, each exactly once\n" in text
    assert "result     each sample exactly once an epoch\n" in text


def test_the_steps_of_a_sample(finished):
    for sample in 0, 17, SIZE - 1:
        places = audit(finished.folder, "--sample", sample)["places"]
        assert [(place["step"], place["rank"]) for place in places] == finished.places_of(sample)
        assert [place["epoch"] for place in places] == [0, 1, 2]
    step, rank = finished.places_of(17)[0]
    assert re.search(rf"^sample 17  epoch 1, step {step}, rank {rank}, position \d+$",
                     text_of(0, finished.folder, "--sample", 17), re.MULTILINE)
    samples = " ".join(map(str, finished.seen[2][0]))
    assert f"step 2     rank 0: samples {samples}\n" in text_of(0, finished.folder, "--step", 2)


def test_it_needs_neither_data_nor_recipe(finished, tmp_path):
    shutil.copytree(finished.folder, tmp_path / "run")
    (tmp_path / "run/recipe.toml").unlink()
    assert audit(tmp_path / "run")["epochs"] == audit(finished.folder)["epochs"]
    checkpoint = latest_checkpoint(tmp_path / "run")
    assert text_of(0, checkpoint).split("\n", 1)[1] == text_of(0, finished.folder).split("\n", 1)[1]


@pytest.mark.parametrize("values", [{}, {"data__augment__mixup": 0.2}], ids=["even", "pairs"])
def test_two_ranks(tmp_path, values):
    run = Run(tmp_path, train__epochs=2, **values)
    run.train(ranks=2)
    result = audit(run.folder)
    assert result["exactly_once"] and parts(result) == [(0, 2)]
    run.check_against_reads()


@pytest.mark.parametrize("ranks, described", [(2, "2 ranks (1 replica × 2 stages)"),
                                              (4, "4 ranks (2 replicas × 2 stages), 8 samples a replica")])
def test_samples_of_pipelines_are_of_all_their_ranks(tmp_path, ranks, described):
    run = Run(tmp_path, train__epochs=1, distributed__stages=2)
    done = trainer(*run.command(ranks))
    assert done.returncode == 0, done.stderr
    assert f"ranks      steps 1–7: {described}\n" in text_of(0, run.folder)
    first_stages = range(0, ranks, 2)  # which read the images
    share = GLOBAL // len(first_stages)
    reads = {rank: (run.logs[0][2] / f"rank-{rank}").read_text().split()[:share] for rank in first_stages}
    text = text_of(0, run.folder, "--step", 1)
    for rank in first_stages:
        assert f" ranks {rank}–{rank + 1}: samples {' '.join(reads[rank])}\n" in text
    sample = reads[ranks - 2][0]
    assert f", step 1, ranks {ranks - 2}–{ranks - 1}, position " in text_of(0, run.folder, "--sample", sample)
    assert [place["rank"] for place in audit(run.folder, "--sample", sample)["places"]] == [ranks - 2]


def test_killed_in_the_middle_again_and_again(tmp_path):
    run = Run(tmp_path, checkpoint__every_steps=3)
    lost = []
    for _ in range(3):
        last = run.kill_after_a_checkpoint()
        lost.append((int(latest_checkpoint(run.folder).name.split("-")[1]) + 1, last))
    run.train()
    result = audit(run.folder)
    assert result["exactly_once"] and result["step"] == 3 * STEPS_AN_EPOCH
    assert parts(result) == [(0, 1)] + [(first - 1, 1) for first, _ in lost]
    assert [(one["first"], one["last"]) for one in result["repeated"]] == lost
    run.check_against_reads()
    first, last = lost[-1]
    steps = f"steps {first}–{last}" if first < last else f"step {first}"
    assert f"{steps}: computed again; the time before is not in these weights\n" in text_of(0, run.folder)


def test_other_numbers_of_ranks(tmp_path):
    run = Run(tmp_path, checkpoint__every_steps=3)
    run.kill_after_a_checkpoint(ranks=2)
    run.kill_after_a_checkpoint(ranks=3)
    run.train(ranks=1)
    result = audit(run.folder)
    assert result["exactly_once"] and [ranks for _, ranks in parts(result)] == [2, 3, 1]
    run.check_against_reads()
    assert ": 2 ranks, 8 samples each\n" in text_of(0, run.folder)
    assert ": 3 ranks, 5 or 6 samples each, resumed after step " in text_of(0, run.folder)


def test_a_run_continued_in_another_folder(finished, tmp_path):
    saved = latest_checkpoint(finished.folder)
    run = Run(tmp_path, train__epochs=4)
    command = run.command(1)
    command[command.index("auto")] = saved
    done = trainer(*command)
    assert done.returncode == 0, done.stderr
    result = audit(run.folder)
    assert result["exactly_once"] and result["step"] == 4 * STEPS_AN_EPOCH
    assert parts(result) == [(0, 1), (3 * STEPS_AN_EPOCH, 1)]


def test_the_last_epoch_is_not_finished(tmp_path):
    run = Run(tmp_path, train__steps=STEPS_AN_EPOCH + 2)
    run.train()
    run.check_against_reads()
    assert "epoch 2: 32 of 100 samples so far, each at most once\n" in text_of(0, run.folder)


def test_drop_last(tmp_path):
    run = Run(tmp_path, data__drop_last=True, train__epochs=2)
    run.train()
    run.check_against_reads()
    text = text_of(3, run.folder)
    assert "epochs 1–2: 96 of 100 samples in each, each exactly once; 4 left out by data.drop_last\n" in text
    left_out = set(range(SIZE)) - {one for step in range(1, 7) for one in run.seen[step][0]}
    assert len(left_out) == 4
    assert all(place["epoch"] == 1 for place in audit(run.folder, "--sample", min(left_out))["places"])


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_unreadable_sample_is_replaced(tmp_path, ranks):
    run = Run(tmp_path, data__unreadable=17, data__on_error="skip", checkpoint__every_steps=3)
    run.kill_after_a_checkpoint(ranks=ranks)
    run.train(ranks=ranks)
    result = audit(run.folder)
    assert [(epoch, sample) for epoch, _, sample, _ in result["replaced"]] == [(0, 17), (1, 17), (2, 17)]
    assert result["names"] == {"17": "logged[17]"}
    run.check_against_reads()
    assert audit(run.folder, "--sample", 17)["places"] == []
    text = text_of(3, run.folder)
    assert "unreadable sample 17, logged[17]: replaced 3 times\n" in text
    assert "result     not each sample exactly once an epoch: see above for the exceptions\n" in text


def test_data_that_end_a_run_cost_none_of_its_steps(tmp_path):
    unreadable = {"data__unreadable": 17, "batch__micro": 4}
    whole = Run(tmp_path / "whole", data__on_error="skip", **unreadable)
    whole.train()
    run = Run(tmp_path, **unreadable)
    done = trainer(*run.command(1))
    assert done.returncode == 3 and "logged[17]" in done.stderr, done.stderr
    saved = int(latest_checkpoint(run.folder).name.split("-")[1])
    assert saved == logged_steps(run.folder)[-1] > 0
    assert f"step {saved} is saved; --resume auto continues from it" in done.stderr
    again = trainer(*run.command(1))
    assert again.returncode == 3 and "is saved" not in again.stderr  # it came no further
    run.train(data__on_error="skip")
    weights = [(latest_checkpoint(folder) / "model.safetensors").read_bytes() for folder in (run.folder, whole.folder)]
    assert weights[0] == weights[1]


def test_two_ranks_whose_data_end_the_run_say_where_it_continues(tmp_path):
    run = Run(tmp_path, data__unreadable=17, batch__micro=4, checkpoint__every_steps=1)
    done = trainer(*run.command(2))
    assert done.returncode == 3 and "; --resume auto continues from the newest checkpoint" in done.stderr, done.stderr


@pytest.mark.parametrize("balance", ["cost", "throughput"])
def test_balanced_ranks_are_not_known_but_steps_are(tmp_path, balance):
    run = Run(tmp_path, train__epochs=2, distributed__balance=balance, data__unreadable=17, data__on_error="skip")
    run.train(ranks=2)
    result = audit(run.folder)
    assert [(epoch, sample) for epoch, _, sample, _ in result["replaced"]] == [(0, 17), (1, 17)]
    for step, by_rank in run.seen.items():
        places = audit(run.folder, "--step", step)["samples_of_step"]
        assert {place["rank"] for place in places} == {None}
        assert sorted(place["sample"] for place in places) == sorted(sum(by_rank.values(), []))
    assert f"2 ranks, balanced by {balance}\n" in text_of(3, run.folder)
    assert "step 1     unknown rank: samples " in text_of(3, run.folder, "--step", 1)


def test_a_weighted_sampler_asks_for_something_else(tmp_path):
    weights = tmp_path / "weights"
    weights.write_text("1\n" * 99 + "5\n")
    run = Run(tmp_path, data__sampler__name="weighted", data__sampler__weights=str(weights), train__epochs=2)
    run.train()
    run.check_against_reads()
    text = text_of(3, run.folder)
    assert "the sampler does not ask for that\n" in text
    drawn = [len({one for step in range(first, first + 7) for one in run.seen[step][0]}) for first in (1, 8)]
    assert f"epochs 1–2: {min(drawn)} to {max(drawn)} of 100 samples in 100 draws" in text

    weights.write_text("1\n" * 100)
    done = trainer("audit", run.folder)
    assert done.returncode == 3 and 'expected the order "weighted by numbers with the digest' in done.stderr
    recipe = run.folder / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("samples = 100", "samples = 99"))
    done = trainer("audit", run.folder)
    assert done.returncode == 3
    assert "expected the 100 samples of the checkpoint, found 99" in done.stderr
    weights.unlink()
    done = trainer("audit", run.folder)
    assert done.returncode == 3 and done.stdout == ""


def test_a_live_run(tmp_path):
    run = Run(tmp_path, checkpoint__every_steps=2)
    process = start(*run.command(1, data__delay_ms=20))
    end = time.monotonic() + LIMIT_S
    while not run.has_steps_beyond_a_checkpoint():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.002)
    result = audit(run.folder)
    process.kill()
    process.communicate()
    assert result["exactly_once"] and 2 <= result["step"] <= result["logged_step"]


def test_a_run_of_version_0_1():
    text = text_of(3, OLD_RUN)
    assert "steps 1–8: not recorded, nor which samples were replaced; an older Brim took them\n" in text


def copy(finished, folder):
    shutil.copytree(finished.folder, folder / "run")
    return folder / "run"


def test_a_torn_last_line(finished, tmp_path):
    run = copy(finished, tmp_path)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 22, "lo')
    done = trainer("audit", run)
    assert done.returncode == 0 and "the last line of metrics.jsonl is torn after 16 bytes" in done.stderr


@pytest.mark.parametrize("content", [
    b"", b"[]", b"{\"earlier\": 7, \"after_step\": 1e300, \"repeats_to\": -4}", b"\xff\x00", b"[" * 100_000,
    b'{"after_step": 0, "repeats_to": 18446744073709551615, "earlier": [[], {"after_step": "x"}]}'], ids=range(6))
def test_a_damaged_record(finished, tmp_path, content):
    run = copy(finished, tmp_path)
    (run / "run.json").write_bytes(content)
    result = audit(run)
    assert result["exactly_once"] and result["repeated"] == []


@pytest.fixture(scope="module")
def with_little_memory():
    """Runs of the trainer that may take 2 GiB, which a number of a file must not make it ask for."""
    trainers = ForkServer(TRAINER, environment())
    resource.prlimit(trainers.process.pid, resource.RLIMIT_DATA, (1 << 31, 1 << 31))
    return trainers


@pytest.mark.parametrize("change", [
    {"order": {"training samples": 10**18}}, {"order": {"training samples": 0}}, {"order": {"training samples": -1}},
    {"order": {"training samples": 2**64 - 1}}, {"order": {"training samples": 1.5}},
    {"order": {"batch.global": 0}}, {"order": {"batch.global": 2**63}}, {"order": {"run.seed": "x"}},
    {"step": -1}, {"step": 2**48}, {"step": None}, {"history": []}, {"history": {"parts": [{"after_step": 0}]}},
    {"history": {"parts": [{"after_step": 0, "ranks": 2**62, "shares": "even"}]}},
    {"history": {"parts": [{"after_step": 0, "ranks": 0, "shares": "even"}]}},
    {"history": {"parts": [{"after_step": 99, "ranks": 1, "shares": "even"}]}},
    {"history": {"parts": [{"after_step": 0, "ranks": 2, "shares": "even", "stages": 2**62}]}},
    {"history": {"replaced": [[0, 0, 1e300, 2]], "names": {}}},
    {"history": {"replaced": [[0, 10**15, 17, 2]], "names": {"17": "x"}}},
    {"history": {"replaced": [[0, 0, 17, 2], [0, 1, 17, 2]], "names": {"17": "x"}}}], ids=str)
def test_a_hostile_checkpoint(finished, with_little_memory, tmp_path, change):
    checkpoint = latest_checkpoint(copy(finished, tmp_path))
    state = json.loads((checkpoint / "state.json").read_text())
    for key, value in change.items():
        state[key] = {**state[key], **value} if isinstance(value, dict) else value
    (checkpoint / "state.json").write_text(json.dumps(state))
    reseal(checkpoint, "state.json")
    done = with_little_memory.run("audit", checkpoint, timeout=60)
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    assert done.stderr.startswith("error[checkpoint]: ") and "expected" in done.stderr


def test_another_checkpoint_is_taken_where_the_newest_is_damaged(tmp_path):
    run = Run(tmp_path, checkpoint__every_steps=5)
    run.train()
    (latest_checkpoint(run.folder) / "state.json").write_text("{}")
    assert audit(run.folder)["step"] == 20
    assert "later      step 21: in metrics.jsonl, not in this checkpoint\n" in text_of(0, run.folder)


@pytest.mark.parametrize("args, status, message", [
    (["nowhere"], 4, "nowhere: no such folder; expected a run's or a checkpoint's"),
    (["."], 4, "found no complete checkpoint"),
    (["RUN", "--sample", "100"], 2, "--sample: expected a number from 0 to 99, found 100"),
    (["RUN", "--step", "0"], 2, "--step: expected a number from 1 to 21, found 0"),
    (["RUN", "--step", "22"], 2, "--step: expected a number from 1 to 21, found 22"),
    (["RUN", "--step", "two"], 2, "--step: expected a 64-bit integer, found 'two'"),
    (["RUN", "RUN"], 2, "unexpected argument"),
], ids=str)
def test_wrong_usage(finished, tmp_path, args, status, message):
    done = trainer("audit", *[finished.folder if word == "RUN" else word for word in args], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (status, "") and message in done.stderr, done.stderr


def test_a_run_without_checkpoints(tmp_path):
    done = trainer("--recipe", DIGITS, "--output", tmp_path / "run", *sets(train__steps=1, checkpoint__enabled=False))
    assert done.returncode == 0, done.stderr
    assert metrics(tmp_path / "run")
    done = trainer("audit", tmp_path / "run")
    assert done.returncode == 4 and "this run has no complete checkpoint yet" in done.stderr


def test_data_that_changed_between_two_processes_are_told(tmp_path):
    recipe, run = folder_recipe(tmp_path), tmp_path / "run"
    train = ["--recipe", recipe, "--output", run, "--resume", "auto", "--set"]
    assert trainer(*train, "train.epochs=2").returncode == 0
    shutil.move(tmp_path / "images", tmp_path / "elsewhere")  # the same data at another path
    moved = [f"data.{which}.path={tmp_path}/elsewhere" for which in ("train", "eval")]
    same = trainer(*train, "train.epochs=3", "--set", moved[0], "--set", moved[1])
    assert same.returncode == 0 and "the training data are others" not in same.stderr, same.stderr
    assert "each sample exactly once an epoch" in text_of(0, run)
    (tmp_path / "elsewhere/class 1/0.jpg").rename(tmp_path / "elsewhere/class 1/z.jpg")
    other = trainer(*train, "train.epochs=4", "--set", moved[0], "--set", moved[1])
    assert other.returncode == 0 and "the training data are others than before step 10, though as many" in other.stderr
    told = text_of(3, run)
    assert "steps 10–12: 1 rank, resumed after step 9 on other data" in told
    assert "not each sample exactly once an epoch: see above for the exceptions" in told
