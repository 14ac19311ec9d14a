"""Runs the real trainer for the tests of the command line."""
import functools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from fork_server import ForkServer  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TRAINER = pathlib.Path(os.environ["BRIM_BIN_DIR"]) / "trainer"
DIGITS = SOURCE / "recipes" / "digits.toml"
LIMIT_S = 600  # only to catch a hang
CACHE = tempfile.TemporaryDirectory(prefix="brim-cache-")  # what one test remembers is no other run's


def environment():
    env = dict(os.environ, OMP_NUM_THREADS="1", TERM="dumb", XDG_CACHE_HOME=CACHE.name)
    for name in list(env):
        if name.startswith(("ASAN", "UBSAN", "TORCH", "PYTEST")):
            del env[name]
    return env


@functools.cache
def server():
    return ForkServer(TRAINER, environment())


def trainer(*args, cwd=None, **variables):
    """The finished process: returncode, stdout, stderr."""
    return server().run(*args, cwd=cwd, env={**environment(), **variables}, timeout=LIMIT_S)


def start(*args, cwd=None, **variables):
    return server().popen(*args, cwd=cwd, env={**environment(), **variables}, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def start_in_ranks(count, output, *args):
    """The processes of a run of so many ranks on the CPU, forked: the trainer itself starts them as programs."""
    launcher = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
                "BRIM_RENDEZVOUS_FILE": f"{output}-rendezvous"}
    return [start("train", *args, "--devices", "cpu", "--output", output, RANK=str(rank), LOCAL_RANK=str(rank), **launcher)
            for rank in range(count)]


def train_in_ranks(count, output, *args):
    ranks = start_in_ranks(count, output, *args)
    said = [rank.communicate(timeout=LIMIT_S)[1] for rank in ranks]
    assert not any(rank.returncode for rank in ranks), said
    return output


def sets(**values):
    """--set arguments; a_b__c is section a_b, key c."""
    args = []
    for key, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value)
        args += ["--set", f"{key.replace('__', '.')}={text}"]
    return args


def metrics(run):
    """The lines of metrics.jsonl, but those that say when a process ended."""
    return [line for line in all_metrics(run) if set(line) != {"step", "process_age_s", "run_age_s"}]


def all_metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def lengthened(run):
    """The run's metrics as of one whose lines are of so many steps that it took a minute: shorter
    runs are not judged."""
    lines = metrics(run)
    steps = [line for line in lines if "step_s" in line]
    times = math.ceil(60 / (sum(line["step_s"] for line in steps) / len(steps) * steps[-1]["step"]))
    for line in lines:
        line["step"] *= times
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def evaluations(run):
    return [line for line in metrics(run) if "eval_top1" in line]


def latest_checkpoint(run):
    return run / "checkpoints" / (run / "checkpoints" / "latest").read_text().strip()


def tensors(checkpoint):
    """{file/name: array} of every tensor file of a checkpoint."""
    result = {}
    for file in sorted(checkpoint.glob("*.safetensors")):
        for name, array in load_file(file).items():
            result[f"{file.stem}/{name}"] = array
    return result


def assert_same_tensors(left, right):
    left, right = tensors(left), tensors(right)
    assert left.keys() == right.keys()
    different = [name for name in left if left[name].tobytes() != right[name].tobytes()]
    assert not different, f"not bit-identical: {different}"
