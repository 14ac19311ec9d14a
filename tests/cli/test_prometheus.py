"""telemetry.prometheus on a real run: metrics while it trains, nothing left after it."""
import re
import socket
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from trainer import DIGITS, LIMIT_S, metrics, sets, start, trainer


def fetch(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as response:
        return {sample.name: (sample.value, sample.labels)
                for family in text_string_to_metric_families(response.read().decode())
                for sample in family.samples}


def test_a_run_shows_its_metrics_while_it_trains(tmp_path):
    run = start("--recipe", DIGITS, "--output", tmp_path / "run",
                *sets(train__steps=10**6, eval__every_epochs=0, telemetry__prometheus=":0",
                      telemetry__every_steps=1, telemetry__tensorboard=False))
    try:
        port = None
        while port is None:
            line = run.stderr.readline()
            assert line, "it ended without a word of Prometheus"
            found = re.search(r"metrics for Prometheus: http://127\.0\.0\.1:(\d+)/metrics", line)
            port = found and int(found[1])
        end = time.monotonic() + LIMIT_S
        while (metrics := fetch(port)).get("brim_step", (0, {}))[0] < 3:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert metrics["brim_run_info"][1]["run"] == "digits"
        assert metrics["brim_run_info"][1]["device"] == "cpu"
        assert metrics["brim_loss"][0] > 0 and metrics["brim_step_seconds"][0] > 0
        assert metrics["brim_phase_seconds"][1]["phase"]
        assert fetch(port)["brim_step"][0] >= metrics["brim_step"][0]
    finally:
        run.terminate()
        run.communicate(timeout=LIMIT_S)
    assert run.returncode == 75


def test_a_file_is_gone_after_a_stop_too(tmp_path):
    shown = tmp_path / "brim.prom"
    run = start("--recipe", DIGITS, "--output", tmp_path / "run",
                *sets(train__steps=10**6, eval__every_epochs=0, telemetry__prometheus=f"file:{shown}"))
    end = time.monotonic() + LIMIT_S
    while not shown.exists() and run.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    run.terminate()
    _, words = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 75 and not shown.exists(), words


def test_a_port_in_use_is_a_warning_and_the_run_trains(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = trainer("--recipe", DIGITS, "--output", tmp_path / "run",
                       *sets(train__steps=5, telemetry__every_steps=1, telemetry__prometheus=f":{port}"))
    assert done.returncode == 0, done.stderr
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr
    assert [line["step"] for line in metrics(tmp_path / "run") if "loss" in line] == [1, 2, 3, 4, 5]


def test_a_target_that_is_none_is_refused_before_anything_starts(tmp_path):
    done = trainer("--recipe", DIGITS, "--output", tmp_path / "run", *sets(telemetry__prometheus="localhost"))
    assert done.returncode == 2 and 'prometheus = "localhost": there is no port' in done.stderr
    assert not (tmp_path / "run").exists()
