"""telemetry.exec on real runs: the program gets the lines of metrics.jsonl, and can't hold the run up."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from trainer import DIGITS, LIMIT_S, TRAINER, environment, metrics, sets, start, trainer

KEEP = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["BRIM_RUN_FOLDER"])
with open(folder / "kept.jsonl", "a") as kept:
    for line in sys.stdin:
        kept.write(line)
    kept.write("end " + " ".join(sys.argv[1:]) + "\\n")
print("kept")
"""


def program(folder, text, *arguments):
    path = folder / "program.py"
    path.write_text(text)
    return json.dumps([sys.executable, str(path), *arguments])


def train(folder, command, *more, steps=20, **values):
    return trainer("--recipe", DIGITS, "--output", folder, *more,
                   *sets(train__steps=steps, telemetry__every_steps=1, telemetry__tensorboard=False,
                         telemetry__exec=command, **values))


def lines_of(run):
    """But those that say when a process ended, which are written after the program has."""
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    return [line for line in lines if not line.startswith('{"process_age_s"')]


def test_the_program_gets_every_line_and_the_end(tmp_path):
    run = tmp_path / "run"
    done = train(run, program(tmp_path, KEEP, "two words", "$HOME"), "--devices", "cpu,cpu")
    assert done.returncode == 0, done.stderr
    *kept, end = (run / "kept.jsonl").read_text().splitlines(keepends=True)
    assert kept == lines_of(run) and len(kept) >= 21  # 20 steps, an evaluation, from rank 0 alone
    assert end == "end two words $HOME\n"
    assert done.stdout == "" and "kept\n" in done.stderr and "warning" not in done.stderr


def test_a_resumed_run_starts_it_again_for_what_is_new(tmp_path):
    run = tmp_path / "run"
    command = program(tmp_path, KEEP)
    assert train(run, command).returncode == 0
    before = lines_of(run)
    done = train(run, command, "--resume", "auto", steps=25)
    assert done.returncode == 0, done.stderr
    kept = [line for line in (run / "kept.jsonl").read_text().splitlines(keepends=True) if line != "end \n"]
    assert kept == lines_of(run) and len(kept) > len(before)


def test_a_recipe_that_came_with_a_run_starts_no_program(tmp_path):
    run = tmp_path / "run"
    assert train(run, program(tmp_path, KEEP)).returncode == 0
    (run / "kept.jsonl").unlink()
    again = ["--recipe", run / "recipe.toml", "--output", tmp_path / "again"]
    done = trainer(*again)
    assert done.returncode == 2 and "[telemetry] exec: expected a command that you chose" in done.stderr
    assert "--trust-library" in done.stderr and not (tmp_path / "again").exists()
    assert trainer(*again, "--set", "telemetry.exec=[]").returncode == 0
    assert not (tmp_path / "again" / "kept.jsonl").exists()
    assert trainer(*again, "--resume", "auto", "--trust-library", *sets(train__steps=22)).returncode == 0
    assert (tmp_path / "again" / "kept.jsonl").exists()
    assert trainer("eval", run).returncode == 0  # starts none


def test_a_program_that_cannot_be_started_or_ends_is_a_warning(tmp_path):
    done = train(tmp_path / "a", '["no-such-program"]')
    assert done.returncode == 0
    assert "warning: telemetry.exec: no-such-program cannot be started: No such file or directory" in done.stderr
    done = train(tmp_path / "b", program(tmp_path, "import sys\nsys.stdin.readline()\nsys.exit(3)\n"), steps=300)
    assert done.returncode == 0
    assert "reads no more lines; training continues without it" in done.stderr and "ended with status 3" in done.stderr
    for folder, steps in (("a", 20), ("b", 300)):
        assert [line["step"] for line in metrics(tmp_path / folder) if "loss" in line] == list(range(1, steps + 1))
    assert train(tmp_path / "c", '[""]').returncode == 2


def test_one_that_never_reads_neither_stops_nor_slows_the_run_and_is_ended(tmp_path):
    """More than a pipe and the buffer hold: what is dropped is counted, and the process is gone."""
    run = tmp_path / "run"
    text = "import os, pathlib, time\npathlib.Path(os.environ['BRIM_RUN_FOLDER'], 'pid').write_text(str(os.getpid()))\ntime.sleep(1000)\n"
    process = start("--recipe", DIGITS, "--output", run,
                    *sets(train__steps=2500, telemetry__every_steps=1, telemetry__tensorboard=False, eval__every_epochs=0,
                          checkpoint__enabled=False, telemetry__exec=program(tmp_path, text)))
    while not (line := process.stderr.readline()).startswith("brim: done: "):
        assert line, "it ended without a word"
    assert len([line for line in metrics(run) if "loss" in line]) == 2500
    process.terminate()  # it does not wait for 30 s then
    _, rest = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert "did not read fast enough: " in rest and "still ran after the run's end, and was ended" in rest
    assert not pathlib.Path("/proc", (run / "pid").read_text()).exists()


def test_ctrl_c_stops_the_run_and_not_the_program(tmp_path):
    """A terminal sends SIGINT to all of its foreground group; the program still gets the last lines."""
    run = tmp_path / "run"
    process = subprocess.Popen(
        [TRAINER, "--recipe", DIGITS, "--output", run,
         *sets(train__steps=10**6, telemetry__every_steps=1, eval__every_epochs=0, telemetry__exec=program(tmp_path, KEEP))],
        env=environment(), start_new_session=True, stderr=subprocess.DEVNULL)
    end = time.monotonic() + LIMIT_S
    while not (run / "kept.jsonl").exists():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=LIMIT_S) == 75
    *kept, last = (run / "kept.jsonl").read_text().splitlines(keepends=True)
    assert last == "end \n" and kept == lines_of(run)
