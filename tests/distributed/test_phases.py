"""Under each strategy: a rank that is killed or stopped in any phase of a step is named by the others, and
what collectives wait for changes no bit."""
import contextlib
import re

import pytest

from runs import SHORT_TIMEOUT_S, TIMEOUT_S, TRAINER, Run, job, with_fault
from test_fsdp import GPT
from trainer import assert_same_tensors, latest_checkpoint, metrics, sets

# Ranks, and what makes them of that strategy.
STRATEGIES = {
    "ddp": (3, {}),
    "zero1": (3, {"distributed__zero": True}),
    "fsdp": (3, {"distributed__strategy": "fsdp"}),
    "hybrid": (4, {"distributed__strategy": "fsdp", "distributed__shards": 2}),
    "stages": (3, {"distributed__stages": 3, "batch__micro": 16, "model__depth": 3}),
}
# Which rank, at which call: of stages the first one flattens images, and the last one evaluates.
PHASES = {"forward": (0, 3), "backward": (1, 3), "communication": (1, 40), "optimizer": (0, 2),
          "evaluation": (2, 1), "checkpoint": (1, 1)}


def kind_of(strategy, phase):
    """Both kinds meet each strategy and each phase."""
    return ("kill", "stop")[(list(STRATEGIES).index(strategy) + list(PHASES).index(phase)) % 2]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rank_that_fails_is_named(strategy, tmp_path):
    world, values = STRATEGIES[strategy]
    with contextlib.ExitStack() as stack:  # those that wait for a time limit wait together
        started = []
        for phase, (rank, call) in PHASES.items():
            kind = kind_of(strategy, phase)
            folder = tmp_path / phase
            folder.mkdir()
            run = stack.enter_context(Run(folder))
            limit = SHORT_TIMEOUT_S if kind == "stop" else TIMEOUT_S
            words = job(folder / "run", **values, distributed__timeout_s=limit)
            started.append((run, phase, kind, rank, run.start_ranks(world, with_fault(
                [TRAINER, *words], f"rank={rank},where={phase},call={call},kind={kind}"))))
        for run, phase, kind, rank, ranks in started:
            for other in set(range(world)) - {rank}:
                result = run.finish(ranks[other])
                assert result.status == 6, (phase, kind, result.stderr)
                assert re.search(rf"\brank {rank}\b", result.error), (phase, kind, result.stderr)
            if kind == "stop":
                ranks[rank].kill()
            run.finish(ranks[rank])
            assert "starting in" in run.finish(ranks[0]).stderr, phase  # in training, not before it


REPETITIONS = 50  # steps, whose collectives each begin late by a time at random


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_late_collectives_change_no_bit(strategy, tmp_path):
    """A bit that differs in one of the steps differs in the weights and averages after all of them."""
    world, values = STRATEGIES[strategy]
    values = {**values, "train__clip_norm": 0.1}
    values.pop("model__depth", None)
    values.pop("batch__micro", None)
    command = [TRAINER, *GPT, *sets(**values, batch__micro=1, model__width=6, data__length=4, eval__enabled=False,
                                    telemetry__every_steps=1, train__steps=REPETITIONS), "--output"]
    for name, fault in (("plain", None), ("late", "where=communication,call=1,kind=jitter,ms=1")):
        words = [*command, tmp_path / name]
        with Run(tmp_path) as run:
            for rank in run.start_ranks(world, with_fault(words, fault) if fault else words):
                done = run.finish(rank)
                assert done.status == 0, done.stderr
    assert_same_tensors(latest_checkpoint(tmp_path / "plain"), latest_checkpoint(tmp_path / "late"))
    plain, late = [[line["loss"] for line in metrics(tmp_path / name) if "loss" in line] for name in ("plain", "late")]
    assert len(plain) == REPETITIONS and plain == late
