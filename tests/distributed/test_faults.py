"""A rank that dies, stops or throws, wherever it is: no other one hangs, and it is named."""
import contextlib
import json
import os
import re
import signal

import pytest

from runs import SHORT_TIMEOUT_S, TIMEOUT_S, TRAINER, Run, by_file, job, run, with_fault  # noqa: F401

WORLD = 3
WHERE = {"start": 1, "forward": 3, "backward": 3, "evaluation": 1, "checkpoint": 1}  # at which call
KIND = ["kill", "stop", "segv", "exit", "throw"]
# Every kind meets rank 0, which serves the store, and others.
CASES = [(where, kind, (i + j) % WORLD) for i, where in enumerate(WHERE)
         for j, kind in enumerate(KIND)]


def is_silent(where, kind):
    """Only silence takes the time limit to be found."""
    return kind == "stop" or where == "start"


# Those that wait for a time limit wait together.
SILENT = [case for case in CASES if is_silent(*case[:2])]


def fault(where, kind, rank):
    return f"rank={rank},where={where},call={WHERE[where]},kind={kind}"


def broken_job(output, where, kind, rank):
    limit = SHORT_TIMEOUT_S if is_silent(where, kind) else TIMEOUT_S
    return with_fault([TRAINER, *job(output, distributed__timeout_s=limit)], fault(where, kind, rank))


def own_statuses(where, kind):
    """How the broken rank itself ends."""
    if kind == "throw":  # before main no one catches it
        return {-signal.SIGABRT} if where == "start" else {1}
    return {{"kill": -signal.SIGKILL, "stop": -signal.SIGKILL, "segv": -signal.SIGSEGV,
             "exit": 1}[kind]}


def runs_of(cases, tmp_path, stack):
    for number, case in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        yield stack.enter_context(Run(folder)), case


def check_without_a_launcher(run, ranks, where, kind, rank):
    for other in set(range(WORLD)) - {rank}:
        result = run.finish(ranks[other])
        assert result.status == 6, (where, kind, rank, result.stderr)
        assert re.search(rf"\brank {rank}\b", result.error), (where, kind, result.stderr)
        assert "frame #" not in result.stderr and "[c10d]" not in result.stderr, result.stderr
    if kind == "stop":
        os.kill(ranks[rank].pid, signal.SIGKILL)
    assert run.finish(ranks[rank]).status in own_statuses(where, kind)


@pytest.mark.parametrize("where, kind, rank", [case for case in CASES if case not in SILENT])
def test_without_a_launcher_the_others_end_and_name_the_rank(where, kind, rank, run, tmp_path):
    ranks = run.start_ranks(WORLD, broken_job(tmp_path / "run", where, kind, rank))
    check_without_a_launcher(run, ranks, where, kind, rank)


@pytest.mark.parametrize("half", [0, 1])
def test_without_a_launcher_a_silent_rank_is_named(half, tmp_path):
    with contextlib.ExitStack() as stack:
        started = [(run, run.start_ranks(WORLD, broken_job(run.folder / "run", *case)), case)
                   for run, case in runs_of(SILENT[half::2], tmp_path, stack)]
        for run, ranks, case in started:
            check_without_a_launcher(run, ranks, *case)


@pytest.mark.parametrize("where, kind, rank, words", [
    ("forward", "kill", 1, "was killed by signal 9 (SIGKILL)"),
    ("backward", "segv", 0, "was killed by signal 11 (SIGSEGV)"),
    ("checkpoint", "exit", 2, "exited with status 1"),
    ("evaluation", "throw", 1, "exited with status 1; its error: error[bug]: the injected fault"),
    ("start", "kill", 2, "was killed by signal 9 (SIGKILL)"),
])
def test_trainrun_names_the_rank_and_how_it_ended(where, kind, rank, words, run, tmp_path):
    launcher = run.trainrun(WORLD, broken_job(tmp_path / "run", where, kind, rank))
    result = run.finish(launcher)
    signals = {"kill": signal.SIGKILL, "segv": signal.SIGSEGV}
    assert result.status == (128 + signals[kind] if kind in signals else 1), result.stderr
    assert f"rank {rank} (pid " in result.error and words in result.error
    assert "a second signal" not in result.stderr  # no one sent a first
    assert "frame #" not in result.stderr and "[c10d]" not in result.stderr, result.stderr


def test_a_rank_that_stops_under_trainrun_is_found_by_the_trainer(tmp_path):
    # Rank 0 that stops at the start leaves a socket, the launcher's, on which no one answers.
    cases = [("start", 0), ("start", 2), ("backward", 0), ("evaluation", 1)]
    with contextlib.ExitStack() as stack:
        started = [(run, run.trainrun(WORLD, broken_job(run.folder / "run", where, "stop", rank)), rank)
                   for run, (where, rank) in runs_of(cases, tmp_path, stack)]
        for run, launcher, rank in started:
            result = run.finish(launcher)
            assert result.status == 6, result.stderr
            assert all(f"rank {rank}" in line for line in result.errors), result.stderr
            assert "exited with status 6; its error: error[distributed]: " in result.error


def test_every_rank_reports_the_error_that_one_of_them_prints(run, tmp_path):
    """A launcher quotes whichever rank it sees end first."""
    command = [TRAINER, *job(tmp_path / "run", train__recompute=["nothing"])]
    rendezvous = by_file(tmp_path)
    ranks = [run.start_rank(rank, 2, command, {**rendezvous, "TORCHELASTIC_ERROR_FILE": str(tmp_path / f"{rank}.json")})
             for rank in range(2)]
    printed = [run.finish(rank) for rank in ranks]
    assert [done.status for done in printed] == [2, 2]
    assert sum(len(done.errors) for done in printed) == 1  # printed once
    for rank in range(2):
        message = json.loads((tmp_path / f"{rank}.json").read_text())["message"]["message"]
        assert message.startswith('error[recipe]: [train] recompute: "nothing" is no block'), message


def test_what_libtorch_throws_is_printed_without_its_stack(run, tmp_path):
    """As by a component of a user's own."""
    result = run.finish(run.trainrun(2, broken_job(tmp_path / "run", "forward", "libtorch", 1)))
    assert result.status == 1, result.stderr
    assert "error[bug]: the injected mistake (this is a bug in Brim, or in a component of your own" in result.stderr
    assert "frame #" not in result.stderr and "Exception raised from" not in result.stderr
