"""What a launcher's end, a stop and a restart leave: nothing running, and the same training."""
import pytest

from runs import TRAINER, Run, free_port, job, run, wait_until, with_fault  # noqa: F401
from trainer import assert_same_tensors, latest_checkpoint, metrics

WORLD = 3
STEPS = 40


def command(output, **values):
    return [TRAINER, *job(output, **{"train__steps": STEPS, "checkpoint__every_steps": 8,
                                     "model__dropout": 0.1, "train__ema": 0.99, **values})]


def losses(folder):
    """Of every step and evaluation; a loss may arrive after the evaluation of its step."""
    return sorted((line["step"], "eval_loss" in line, line.get("eval_loss", line.get("loss")))
                  for line in metrics(folder))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    with Run(folder) as whole:
        result = whole.finish(whole.trainrun(WORLD, command(folder / "run")))
    assert result.status == 0, result.stderr
    return folder / "run"


def assert_same_training(left, right):
    assert latest_checkpoint(left).name == latest_checkpoint(right).name
    assert_same_tensors(latest_checkpoint(left), latest_checkpoint(right))
    assert losses(left) == losses(right)


def test_a_crash_is_continued_from_the_last_checkpoint_bit_for_bit(undisturbed, run, tmp_path):
    fault = "rank=1,where=backward,call=21,kind=kill,restart=0"
    result = run.finish(run.trainrun(WORLD, with_fault(command(tmp_path / "run"), fault),
                                     "--max-restarts=1"))
    assert result.status == 0, result.stderr
    assert "was killed by signal 9 (SIGKILL)" in result.stderr
    assert "starting again (restart 1 of 1)" in result.stderr
    assert "resuming in" in result.stderr
    assert_same_training(undisturbed, tmp_path / "run")


@pytest.mark.parametrize("rank", [0, 1])
def test_nodes_start_again_together(rank, run, tmp_path):
    """The launcher whose rank died is the first to start again, and meets what is left of rank 0."""
    fault = f"rank={rank},where=backward,call=21,kind=kill,restart=0"
    nodes = ["--nnodes=2", "--max-restarts=1", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    launchers = [run.trainrun(1, with_fault(command(tmp_path / "run"), fault), *nodes, f"--node-rank={node}")
                 for node in range(2)]
    results = [run.finish(launcher) for launcher in launchers]
    assert [result.status for result in results] == [0, 0], results[0].stderr + results[1].stderr
    assert "resuming in" in results[0].stderr and metrics(tmp_path / "run")[-1]["step"] == STEPS


@pytest.mark.parametrize("where, rank", [("backward", 0), ("forward", 1), ("evaluation", 1)])
def test_a_stop_saves_on_all_ranks_and_goes_on_bit_for_bit(where, rank, undisturbed, run, tmp_path):
    call = 1 if where == "evaluation" else 13
    fault = f"rank={rank},where={where},call={call},kind=stop_launcher"
    result = run.finish(run.trainrun(WORLD, with_fault(command(tmp_path / "run"), fault)))
    assert result.status == 75, result.stderr
    assert "state saved" in result.stderr
    assert result.stderr.count("stopping; a second signal stops at once") == 1  # by the launcher, not each rank
    assert not run.processes()
    result = run.finish(run.trainrun(WORLD, [*command(tmp_path / "run"), "--resume", "auto"]))
    assert result.status == 0, result.stderr
    assert_same_training(undisturbed, tmp_path / "run")


@pytest.mark.parametrize("where", ["start", "backward", "checkpoint"])
def test_nothing_outlives_a_launcher_that_is_killed(where, run, tmp_path):
    fault = f"rank=1,where={where},call=1,kind=kill_launcher"
    launcher = run.trainrun(WORLD, with_fault(command(tmp_path / "run", train__steps=100000), fault))
    assert run.finish(launcher).status == -9
    wait_until(lambda: not run.processes(), "the workers' end")
