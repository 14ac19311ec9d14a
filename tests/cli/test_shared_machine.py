"""Training beside other processes that use the same cores."""
import contextlib
import os
import pathlib
import subprocess
import sys

from test_live_run import live
from trainer import DIGITS, TRAINER, environment, sets, trainer

CORES = len(os.sched_getaffinity(0))
os.environ.pop("OMP_WAIT_POLICY", None)  # other tests are run with sleeping threads


@contextlib.contextmanager
def busy_processes(count):
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def cpu_seconds(output, variables=()):
    """Processor time of a run of digits whose OpenMP threads are as many as the cores."""
    env = dict(environment(), **dict(variables))
    del env["OMP_NUM_THREADS"]
    process = subprocess.Popen([TRAINER, "--recipe", DIGITS, "--output", str(output)], env=env,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return usage.ru_utime + usage.ru_stime


def test_waiting_threads_do_not_spin_on_cores_that_others_use(tmp_path):
    sleeping = cpu_seconds(tmp_path / "sleeping", {"OMP_WAIT_POLICY": "passive"})
    with busy_processes(CORES):
        beside = cpu_seconds(tmp_path / "beside")
    assert beside < 4 * sleeping + 1, (beside, sleeping)


def test_a_run_that_others_disturbed_is_measured_again(tmp_path):
    with busy_processes(1):
        done = trainer("bench", "--recipe", DIGITS, "--steps", 4, "--repeats", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    repeated = [line for line in done.stderr.splitlines() if line.endswith("; repeating it")]
    assert len(repeated) == 2  # no more than count


def nice_of_threads(process):
    stats = pathlib.Path(f"/proc/{process}/task").glob("*/stat")
    return [int(stat.read_text().rpartition(")")[2].split()[16]) for stat in stats]


def test_the_loaders_threads_leave_the_cores_to_the_step(tmp_path):
    with live(tmp_path / "run", *sets(data__workers=2, eval__enabled=False)) as process:
        nice = nice_of_threads(process.pid)
    own = os.nice(0)  # the tests' own, which 19 limits
    assert nice.count(min(19, own + 10)) == 2 and nice.count(own) == len(nice) - 2


def test_doctor_says_how_threads_wait():
    assert "spin, on shared cores only while steps are faster so" in trainer("doctor").stdout
