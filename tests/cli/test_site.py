"""The rules of a machine that several people share, followed by real runs on the CPU and on GPUs of a fake NVML."""
import contextlib
import datetime
import getpass
import json
import os
import re
import signal
import subprocess
import time

import pytest

from gpus import Gpus
from trainer import DIGITS, LIMIT_S, TRAINER, environment, latest_checkpoint, metrics, server, sets

USER = getpass.getuser()
SMALL = ["--recipe", DIGITS, *sets(model__hidden=8, batch__global=16, data__workers=1, eval__enabled=False,
                                   telemetry__tensorboard=False, telemetry__every_steps=1)]
LONG = [*SMALL, *sets(train__epochs=10000)]


class House:
    """A machine with rules of its own, and commands on it."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "site.toml"
        self.env = {**environment(), "BRIM_SITE": str(self.file), "BRIM_GPU_LOCK_FOLDER": str(folder / "locks")}

    def rules(self, text):
        self.file.write_text(f'contact = "gpus@example.org"\n{text}')
        self.file.chmod(0o644)

    def run(self, *args, **env):
        return server().run(*args, env={**self.env, **env}, cwd=self.folder, timeout=LIMIT_S)

    @contextlib.contextmanager
    def running(self, *args, **env):
        """What it writes is in `said`, a file."""
        said = self.folder / f"said-{time.monotonic_ns()}"
        with said.open("w") as output:
            process = server().popen(*args, env={**self.env, **env}, cwd=self.folder, stdin=subprocess.DEVNULL,
                                     stdout=output, stderr=output)
        process.said = said
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def shown(self, **env):
        shown = self.run("devices", "--json", BRIM_NVML_LIBRARY=env.pop("BRIM_NVML_LIBRARY", "/nowhere.so"), **env)
        assert shown.returncode == 0, shown.stderr
        return json.loads(shown.stdout)


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path)
    house.rules("")
    return house


def wait_for(condition, process=None):
    end = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < end
        assert process is None or process.poll() is None, process.said.read_text()
        time.sleep(0.02)
    return found


def children(pid):
    return [int(child) for child in open(f"/proc/{pid}/task/{pid}/children").read().split()]


def steps(run):
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        return len(metrics(run))
    return 0


def zone_at_noon(seconds_ago=0):
    """TZ of a place where it was noon so long ago; below 0, will be."""
    now = datetime.datetime.now(datetime.timezone.utc)
    west = now.hour * 3600 + now.minute * 60 + now.second - 12 * 3600 - seconds_ago
    hours, rest = divmod(abs(west), 3600)
    return f"XXX{'-' if west < 0 else ''}{hours}:{rest // 60:02}:{rest % 60:02}"


def test_a_machine_without_rules_has_none(house):
    assert house.shown(BRIM_SITE="")["site"] is None
    done = house.run(*SMALL, *sets(train__steps=2), "--output", "run", BRIM_SITE="")
    assert done.returncode == 0, done.stderr


def test_a_bad_file_is_refused_wherever_rules_count(house):
    house.rules("[rules.a]\nat_mots = 1\n")
    for command in (["devices"], ["train", *SMALL], ["tune", *SMALL], ["sweep", *SMALL, "--vary", "run.seed=1,2"]):
        refused = house.run(*command)
        assert refused.returncode == 2, refused.stderr
        assert f"{house.file}:3:1: unknown key 'at_mots' in [rules.a]; did you mean 'at_most'?" in refused.stderr
        assert "nothing trains here until whoever keeps this file has corrected it" in refused.stderr
    assert sorted(path.name for path in house.folder.iterdir()) == ["site.toml"]


def test_who_holds_what_is_shown_and_counted(house):
    house.rules("[rules.everyone]\nat_most = 3\n")
    with house.running(*LONG, "--devices", "cpu,cpu", "--output", "run") as first:
        # Both ranks have met, so that none is stopped before it has asked to die with its launcher.
        wait_for(lambda: (house.folder / "run").exists() and len(children(first.pid)) == 2, first)
        for rank in children(first.pid):
            os.kill(rank, signal.SIGSTOP)  # what they hold is shown, not what they do
        [held] = house.shown()["held"]
        assert held["user"] == USER and held["what"] == "digits" and held["devices"] == ["cpu", "cpu"]
        assert held["process"] == first.pid
        assert abs(datetime.datetime.fromisoformat(held["since"]).timestamp() - time.time()) < LIMIT_S
        text = house.run("devices", BRIM_NVML_LIBRARY="/nowhere.so").stdout
        assert f"rules  of {house.file} for {USER}" in text and "whom to ask: gpus@example.org" in text
        assert "everyone (line 2): at_most = 3" in text
        assert f"held   the CPU for 2 ranks by {USER}: digits, process {first.pid}, since 20" in text

        refused = house.run(*SMALL, "--devices", "cpu,cpu", "--output", "second")
        assert refused.returncode == 5
        assert re.search(rf"rule 'everyone' \({house.file}:3\) gives {USER} at most 3 devices at once: this run would "
                         rf"make it 4; held already: the CPU for 2 ranks by digits \(process {first.pid}\) since "
                         r"\d\d:\d\d\. Wait or end one, or ask gpus@example.org", refused.stderr), refused.stderr
        assert not (house.folder / "second").exists()
        beside = house.run(*SMALL, *sets(train__steps=2), "--output", "beside")
        assert beside.returncode == 0, beside.stderr
    wait_for(lambda: house.shown()["held"] == [])  # though it was killed
    again = house.run(*SMALL, *sets(train__steps=2), "--devices", "cpu,cpu", "--output", "second")
    assert again.returncode == 0, again.stderr


def test_a_launcher_is_no_way_round(house):
    house.rules("[rules.everyone]\nat_most = 1\n")
    refused = subprocess.run([TRAINER.parent / "trainrun", "--nproc-per-node", "2", TRAINER, "train", *map(str, SMALL),
                              "--output", house.folder / "run"], env=house.env, text=True, capture_output=True,
                             stdin=subprocess.DEVNULL, timeout=LIMIT_S)
    assert refused.returncode == 5, refused.stderr
    assert "rule 'everyone'" in refused.stderr and not (house.folder / "run").exists()


def test_devices_that_a_user_may_not_use(house):
    house.rules(f'[rules.spared]\ndevices = ["cpu"]\nusers = ["!{USER}"]\nat_most = 0\n')
    allowed = house.run(*SMALL, *sets(train__steps=2), "--output", "run")
    assert allowed.returncode == 0, allowed.stderr
    house.rules('[rules.spared]\ndevices = ["cpu"]\nat_most = 0\n')
    why = f"rule 'spared' ({house.file}:4): {USER} may not use the CPU; ask gpus@example.org"
    for command in (["train", *SMALL], ["tune", *SMALL], ["profile", *SMALL], ["eval", "run", "--recipe", DIGITS],
                    ["sweep", *SMALL, *sets(eval__enabled=True), "--vary", "run.seed=1,2"]):
        refused = house.run(*command, "--devices", "cpu")
        assert refused.returncode == 5 and why in refused.stderr, refused.stderr


def test_memory_is_capped_and_a_recipe_may_ask_for_less(house):
    house.rules("[rules.everyone]\nmemory_gib = 1\n")
    capped = house.run(*SMALL, *sets(train__steps=2), "--output", "run")
    assert "the cap is 1.0 GiB" in capped.stderr, capped.stderr
    less = house.run(*SMALL, *sets(train__steps=2, device__memory_gib=0.5), "--output", "less")
    assert "the cap is 512.0 MiB" in less.stderr, less.stderr
    more = house.run(*SMALL, *sets(device__memory_gib=2), "--output", "more")
    assert more.returncode == 5
    assert f"device.memory_gib = 2 is more than rule 'everyone' ({house.file}:3) gives: 1." in more.stderr


def test_what_does_not_fit_under_a_rule_names_the_rule_and_whom_to_ask(house):
    house.rules("[rules.everyone]\nmemory_gib = 0.2\n")
    large = ["--recipe", DIGITS, *sets(model__hidden=8000, batch__global=16)]
    refused = house.run(*large, "--output", "run")
    assert refused.returncode == 5
    assert (f"or ask gpus@example.org for more: rule 'everyone' ({house.file}:3) gives a job at most 0.2 GiB "
            "of a device") in refused.stderr, refused.stderr
    assert "device.memory_gib" not in refused.stderr
    own = house.run(*large, *sets(device__memory_gib=0.1), "--output", "own")
    assert own.returncode == 5 and "give the job more memory (device.memory_gib)" in own.stderr, own.stderr


def test_a_run_stops_saved_when_its_hours_are_over(house):
    house.rules("[rules.everyone]\nhours = 0.0005\n")
    stopped = house.run(*LONG, "--output", "run")
    assert stopped.returncode == 75, stopped.stderr
    assert f"rule 'everyone' ({house.file}:3): 1.8 s at a stretch are over: this run saves" in stopped.stderr
    assert "state saved; resume with" in stopped.stderr
    latest_checkpoint(house.folder / "run")


def test_nothing_begins_in_quiet_hours(house):
    house.rules('[rules.noon]\nquiet_hours = "11:00-13:00"\n')
    refused = house.run(*SMALL, "--output", "run", TZ=zone_at_noon())
    assert refused.returncode == 5, refused.stderr
    assert re.search(rf"rule 'noon' \({house.file}:3\): quiet hours 11:00-13:00; training may continue at 13:00, in "
                     r"(59 m \d\d s|1 h 00 m); ask gpus@example.org", refused.stderr), refused.stderr
    assert not (house.folder / "run").exists()


def test_what_runs_stops_saved_when_quiet_hours_begin(house):
    house.rules('[rules.noon]\nquiet_hours = "12:00-13:00"\n')
    begin = time.monotonic() + 8
    with house.running(*LONG, "--output", "run", TZ=zone_at_noon(-8)) as process:
        wait_for(lambda: steps(house.folder / "run") > 2, process)
        process.send_signal(signal.SIGSTOP)  # so that the wait costs nothing
        time.sleep(max(0.0, begin + 1 - time.monotonic()))
        process.send_signal(signal.SIGCONT)
        assert process.wait(LIMIT_S) == 75, process.said.read_text()
    assert "quiet hours 12:00-13:00; training may continue at 13:00" in process.said.read_text()
    latest_checkpoint(house.folder / "run")


@pytest.mark.parametrize("devices", ["cpu", "cpu,cpu"])
def test_training_leaves_its_device_and_continues_later(devices, house):
    busy = house.folder / "busy"
    house.rules(f'[rules.serving]\nyields_to = ["{busy}"]\n')
    with house.running(*LONG, "--devices", devices) as process:
        run = house.folder / "runs" / "digits"
        wait_for(lambda: steps(run) > 2, process)
        (house.folder / "runs" / "digits-2").mkdir()  # another's of the same name
        busy.touch()
        wait_for(lambda: "waiting: rule 'serving'" in process.said.read_text(), process)
        assert house.shown()["held"] == [] and children(process.pid) == []
        saved = int(latest_checkpoint(run).name.removeprefix("step-"))
        assert len(metrics(run)) == saved
        busy.unlink()
        wait_for(lambda: steps(run) > saved + 2, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 75, process.said.read_text()
    said = process.said.read_text()
    assert said.count(f"rule 'serving' ({house.file}:3): {busy} is there: this run saves its state") == 1, said
    assert said.count("resuming in") == 1
    recorded = [line["step"] for line in metrics(run)]
    assert recorded == list(range(1, len(recorded) + 1))


def test_a_stop_ends_the_wait(house):
    busy = house.folder / "busy"
    busy.touch()
    house.rules(f'[rules.serving]\nyields_to = ["{busy}"]\n')
    with house.running(*SMALL, "--output", "run") as process:
        wait_for(lambda: "waiting: rule 'serving'" in process.said.read_text(), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 75
    assert "stopped while waiting for a device; nothing was begun" in process.said.read_text()
    assert not (house.folder / "run").exists()


def test_a_stop_by_the_user_is_no_yielding(house):
    busy = house.folder / "busy"
    house.rules(f'[rules.serving]\nyields_to = ["{busy}"]\n')
    with house.running(*LONG, "--output", "run") as process:
        wait_for(lambda: steps(house.folder / "run") > 2, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 75
    latest_checkpoint(house.folder / "run")


def test_defaults_are_what_a_recipe_leaves_out(house):
    house.rules('[defaults]\nruns = "/scratch/{user}"\n[defaults.precision]\nmode = "fp32"\n'
                '[defaults.checkpoint]\nevery_minutes = 7\nkeep = 9\n')
    recipe = house.folder / "own.toml"
    recipe.write_text(f'extends = "{DIGITS}"\n[checkpoint]\nkeep = 2\n')
    shown = house.run("recipe", "show", recipe)
    assert shown.returncode == 0, shown.stderr
    assert 'mode = "fp32"' in shown.stdout and "every_minutes = 7.0" in shown.stdout and "keep = 2" in shown.stdout
    assert house.shown()["site"]["runs"] == f"/scratch/{USER}"
    runs = house.folder / "scratch"
    house.rules(f'[defaults]\nruns = "{runs}/{{user}}"\n')
    for name in ("digits", "digits-2"):
        done = house.run(*SMALL, *sets(train__steps=2))
        assert done.returncode == 0, done.stderr
        assert (runs / USER / name / "recipe.toml").is_file()


@pytest.mark.parametrize("defaults, words", [
    ('[defaults.model]\nname = "mlp"', ":2:11: unknown section 'model' in [defaults]"),
    ('[defaults.precision]\nmode = "fp8"', ":3:8: 'mode' in [defaults.precision]: expected one of"),
    ('[defaults]\nruns = "here"', ":3:8: 'runs' in [defaults]: expected a whole path"),
])
def test_defaults_that_a_machine_does_not_give(defaults, words, house):
    house.rules(defaults)
    for command in (["devices"], ["train", *SMALL]):
        refused = house.run(*command)
        assert refused.returncode == 2 and f"{house.file}{words}" in refused.stderr, refused.stderr


def test_a_sweep_keeps_to_the_rules(house):
    busy = house.folder / "busy"
    house.rules(f'[rules.everyone]\nat_most = 1\nyields_to = ["{busy}"]\n')
    job = [*SMALL, *sets(train__steps=1500, eval__enabled=True), "--vary", "run.seed=1,2", "--per-device", "2",
           "--output", "sweep"]
    with house.running("sweep", *job) as process:
        run = house.folder / "sweep" / "trials" / "0001"
        wait_for(lambda: steps(run) > 2, process)
        [trial] = children(process.pid)  # though there is room for two
        os.kill(trial, signal.SIGSTOP)
        assert [held["devices"] for held in house.shown()["held"]] == [["cpu"]]
        assert not (house.folder / "sweep" / "trials" / "0002" / "run.json").exists()
        busy.touch()
        os.kill(trial, signal.SIGCONT)
        wait_for(lambda: "waiting: rule 'everyone'" in process.said.read_text(), process)
        busy.unlink()
        assert process.wait(LIMIT_S) == 0, process.said.read_text()
    status = json.loads(house.run("sweep", "status", "sweep", "--json").stdout)
    assert [trial["state"] for trial in status["trials"]] == ["done", "done"], status


def test_a_sweep_does_not_wait_for_what_it_gave_back(house):
    house.rules("[rules.everyone]\nat_most = 1\n")
    done = house.run("sweep", *SMALL, *sets(train__steps=4, eval__enabled=True), "--vary", "run.seed=1,2,3,4",
                     "--per-device", "2", "--output", "sweep")
    assert done.returncode == 0 and "4 of 4 trials done" in done.stderr, done.stderr
    assert "waiting" not in done.stderr


@pytest.fixture
def gpus(house, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    house.env.pop("CUDA_VISIBLE_DEVICES", None)
    return Gpus(house.folder, 2)


def test_rules_about_gpus_decide_which_is_chosen(house, gpus):
    house.rules('[rules.spared]\ndevices = ["0"]\nat_most = 0\n')
    job = [*SMALL, "--dry-run"]
    other = house.run(*job, **gpus.environment())
    assert other.returncode == 0 and "on GPU 1 (NVIDIA Fake)" in other.stderr, other.stderr
    for devices, more in (("0", {}), ("GPU-0", {}), ("1", {"CUDA_VISIBLE_DEVICES": "1,0"})):
        refused = house.run(*job, "--devices", devices, **gpus.environment(**more))
        assert refused.returncode == 5, refused.stderr
        assert f"rule 'spared' ({house.file}:4): {USER} may not use GPU 0; ask gpus@example.org" in refused.stderr
    swept = house.run("sweep", *SMALL, *sets(eval__enabled=True), "--vary", "run.seed=1,2", "--devices", "0",
                      **gpus.environment())
    assert swept.returncode == 5 and "rule 'spared'" in swept.stderr, swept.stderr


def test_a_gpu_that_serves_is_left_alone(house, gpus):
    house.rules('[rules.serving]\nyields_to = ["sleep"]\n')
    with subprocess.Popen(["sleep", "600"]) as server:
        gpus.set(g0_processes=f"{server.pid}:4096")
        other = house.run(*SMALL, "--dry-run", **gpus.environment())
        server.kill()
    assert other.returncode == 0 and "on GPU 1 (NVIDIA Fake)" in other.stderr, other.stderr


def test_what_idles_while_it_is_held(house, gpus):
    house.rules("[rules.everyone]\nidle_minutes = 0\n")
    house.env["XDG_CACHE_HOME"] = str(house.folder / "cache")
    gpus.set(g1_processes=f"{os.getpid()}:21474836480", g1_memory_used=21474836480)
    assert house.shown(**gpus.environment())["idle"][0]["readings"] == 1
    [idle] = house.shown(**gpus.environment())["idle"]  # GPU 0 idles too, and no one holds it
    assert idle["gpu"] == 1 and idle["readings"] == 2 and idle["memory_used_bytes"] == 21474836480
    assert f"(process {os.getpid()} of {USER})" in idle["held_by"][0]
    text = house.run("devices", **gpus.environment()).stdout
    assert "idle   GPU 1 while held: 20.0 GiB by " in text and "0 % busy in all 3 readings of the last " in text
    gpus.set(g1_busy=3)
    assert house.shown(**gpus.environment())["idle"] == []
    house.rules("[rules.everyone]\nidle_minutes = 60\n")
    gpus.set(g1_busy=0)
    assert house.shown(**gpus.environment())["idle"] == []
