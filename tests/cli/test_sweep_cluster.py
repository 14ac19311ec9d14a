"""Sweeps on many machines: what Slurm and Kubernetes are given, run here as they would run it."""
import json
import os
import signal
import subprocess
import sys

import pytest
import yaml

from test_sweep import states, wait_for
from trainer import DIGITS, LIMIT_S, SOURCE, TRAINER, environment, sets, trainer

SMALL = ["--recipe", DIGITS, *sets(model__hidden=16, model__depth=1, telemetry__tensorboard=False, train__steps=300)]
VARY = ["--vary", "optimizer.learning_rate=0.01,0.02,0.03,0.04"]
STAND_IN = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__)
with open(here.with_name("calls"), "a") as calls:
    calls.write(json.dumps([here.name, *sys.argv[1:]]) + "\\n")
print("Submitted batch job 7")
sys.exit(int("--time=never" in sys.argv))
"""


class Slurm:
    """Stand-ins that note what they are called with."""

    def __init__(self, folder):
        self.folder = folder / "slurm programs"
        self.folder.mkdir()
        for name in ("sbatch", "scontrol", "srun"):
            (self.folder / name).write_text(STAND_IN.format(python=sys.executable))
            (self.folder / name).chmod(0o755)
        self.path = f"{self.folder}:{os.environ['PATH']}"

    def calls(self):
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def task(self, script, number):
        """Starts the batch script as a task of the array."""
        return subprocess.Popen(["bash", script], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, cwd="/", env={
                                    **environment(), "PATH": self.path, "SLURM_ARRAY_JOB_ID": "7",
                                    "SLURM_ARRAY_TASK_ID": str(number), "SLURM_PROCID": "0", "SLURM_NTASKS": "1"})


@pytest.fixture
def slurm(tmp_path):
    return Slurm(tmp_path)


def test_tasks_of_a_job_array_share_the_trials(slurm, tmp_path):
    folder = tmp_path / "it's 100%"
    done = trainer("sweep", *SMALL, *VARY, "--devices", "cpu", "--output", folder,
                   "--slurm=--time=1:00:00  --mem=2G", PATH=slurm.path)
    assert done.returncode == 0 and "Submitted batch job 7" in done.stderr, done.stderr
    script = folder / "slurm.sbatch"
    [[program, *words]] = slurm.calls()
    assert program == "sbatch" and words[0] == "--array=1-4" and words[-3:] == ["--time=1:00:00", "--mem=2G", str(script)]
    assert f"--output={tmp_path}/it's 100%%/slurm/%A_%a.log" in words and "--job-name=sweep-it-s-100" in words
    assert states(folder) == ["waiting"] * 4 and "--gpus" not in script.read_text()

    first = slurm.task(script, 1)
    try:
        wait_for(lambda: "running" in states(folder) and (folder / "trials/0001/run.json").exists())
        first.send_signal(signal.SIGUSR1)  # its time is up
        said = first.communicate(timeout=LIMIT_S)[0]
    finally:
        first.kill()
    assert first.returncode == 75, said
    assert slurm.calls()[1:] == [["scontrol", "requeue", "7_1"]]
    stopped = states(folder).index("stopped")
    tasks = [slurm.task(script, number) for number in (1, 2)]
    for task in tasks:
        said = task.communicate(timeout=LIMIT_S)[0]
        assert task.returncode == 0, said
    assert states(folder) == ["done"] * 4
    starts = [(folder / f"trials/{trial:04}/trainer.log").read_text().count("brim: starting in") for trial in (1, 2, 3, 4)]
    assert starts[:stopped] + starts[stopped + 1:] == [1] * 3
    late = slurm.task(script, 3)
    assert "4 of 4 trials done" in late.communicate(timeout=LIMIT_S)[0] and late.returncode == 0
    assert len(slurm.calls()) == 2


def test_the_script_for_one_run_takes_the_trainer_in_path(slurm, tmp_path):
    """A wheel has neither bin/ nor build/ in the folder that jobs are submitted from."""
    subprocess.run(["bash", SOURCE / "configs/cluster/slurm.sbatch", "digits", "--dry-run"], check=True, cwd=tmp_path, env={
        **environment(), "PATH": slurm.path, "SLURM_JOB_NAME": "brim", "SLURM_JOB_ID": "7"})
    assert slurm.calls() == [["srun", "--kill-on-bad-exit=1", "trainer", "--recipe", "digits", "--output", "runs/brim-7",
                              "--resume", "auto", "--dry-run"]]


def test_a_job_of_gpus_asks_for_them(slurm, tmp_path):
    done = trainer("sweep", *SMALL, *VARY, "--output", tmp_path / "s", "--devices-per-trial", 2, "--per-device", 3,
                   "--slurm", PATH=slurm.path)
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --gpus=2\n" in (tmp_path / "s/slurm.sbatch").read_text()
    assert "--array=1-2" in slurm.calls()[0]


def test_what_slurm_refuses_can_be_submitted_again(slurm, tmp_path):
    folder = tmp_path / "s"
    refused = trainer("sweep", *SMALL, *VARY, "--output", folder, "--slurm=--time=never", PATH=slurm.path)
    assert refused.returncode == 5 and f"trainer sweep --resume {folder} --slurm" in refused.stderr
    missing = trainer("sweep", "--resume", folder, "--slurm", PATH="/nowhere")
    assert missing.returncode == 5 and "sbatch cannot be started" in missing.stderr
    again = trainer("sweep", "--resume", folder, "--slurm", "--json", PATH=slurm.path)
    assert again.returncode == 0 and len(json.loads(again.stdout)["trials"]) == 4
    assert len(slurm.calls()) == 2


def test_kubernetes_gets_an_indexed_job(tmp_path):
    folder = tmp_path / "Lr_1"
    done = trainer("sweep", *SMALL, *VARY, "--output", folder, "--devices", "cpu", "--kubernetes")
    assert done.returncode == 0 and f"kubectl apply --filename {folder}/kubernetes.yaml" in done.stderr, done.stderr
    job = yaml.safe_load((folder / "kubernetes.yaml").read_text())
    assert (job["apiVersion"], job["kind"], job["metadata"]["name"]) == ("batch/v1", "Job", "sweep-lr-1")
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    [container] = spec["template"]["spec"]["containers"]
    assert "resources" not in container
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(folder).startswith(mounts["sweeps"] + "/")
    assert mounts.keys() == {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    program, *words = container["command"]
    assert program == "trainer"
    pod = subprocess.run([TRAINER, *words], env=environment(), cwd="/", text=True, capture_output=True, timeout=LIMIT_S)
    assert pod.returncode == 0, pod.stderr
    assert states(folder) == ["done"] * 4


def test_pods_of_gpus_ask_for_them(tmp_path):
    done = trainer("sweep", *SMALL, *VARY, "--output", tmp_path / "s", "--devices-per-trial", 2, "--kubernetes")
    assert done.returncode == 0, done.stderr
    [container] = yaml.safe_load((tmp_path / "s/kubernetes.yaml").read_text())["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 2}}
