"""trainer watch: pages of real processes over real sockets, and in a browser; what they must not show."""
import html
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from trainer import DIGITS, LIMIT_S, sets, start, trainer

BROWSER = next(filter(None, map(shutil.which, ["chromium-headless-shell", "chromium", "google-chrome"])), None)
EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'&"


def write_run(folder, steps=50, record=None, **more):
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"device": "cpu", "started": "2026-11-25T09:35:20+01:00", **(record or {})}))
    (folder / "recipe.toml").write_text('[model]\nname = "mlp"\n')
    append(folder, range(1, steps + 1), **more)
    return folder


def append(run, steps, **more):
    with open(run / "metrics.jsonl", "a") as file:
        for step in steps:
            file.write(json.dumps({"step": step, "loss": 100 / step, "step_s": 0.1, "samples_per_s": 640.0,
                                   "process_age_s": 0.1 * step, "run_age_s": 0.1 * step,
                                   "phases_s": {"forward": 0.06, "backward": 0.04}, **more}) + "\n")


class Watch:
    def __init__(self, folder, *options):
        self.process = start("watch", folder, "--listen", "127.0.0.1:0", *options)
        line = self.process.stderr.readline()
        found = re.search(r"watching .* at http://127\.0\.0\.1:(\d+)/ until Ctrl-C", line)
        assert found, line + self.process.stderr.read()
        self.port = int(found[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate(timeout=LIMIT_S)

    def url(self, path="/"):
        return f"http://127.0.0.1:{self.port}{path}"

    def get(self, path="/", host=None, status=200):
        """The answer's text."""
        request = urllib.request.Request(self.url(path), headers={"Host": host} if host else {})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                self.headers, text, found = answer.headers, answer.read().decode(), answer.status
        except urllib.error.HTTPError as refused:
            self.headers, text, found = refused.headers, refused.read().decode(), refused.code
        assert found == status, (found, text[:500])
        return text

    def raw(self, target):
        """The answer to a path that no client would send as it is."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S) as client:
            client.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            return b"".join(iter(lambda: client.recv(65536), b"")).decode()

    def blocks(self, have="", path="/"):
        """{name: (version, content)} of what is new beside these versions."""
        text = self.get(f"{path}?have={have}")
        parts = re.split(r'<div data-block="(\w+)" data-version="(\w+)">', text)[1:]
        return {name: (version, content.removesuffix("</div>"))
                for name, version, content in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}

    def wait_for(self, is_there, path="/"):
        end = time.monotonic() + LIMIT_S
        while not is_there(text := self.get(path)):
            assert time.monotonic() < end, text
            time.sleep(0.05)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch") / "runs"
    write_run(folder / "one")
    write_run(folder / "team" / "two words", eval_top1=97.5)
    hostile = write_run(folder / "<b onclick=x>&amp;", record={"user": EVIL, "device": EVIL, "machine": {EVIL: EVIL}},
                        **{"eval_" + EVIL.replace('"', ""): 1})
    (hostile / "recipe.toml").write_text(f"# {EVIL}\n")
    (hostile / "trainer.log").write_text(f"brim: {EVIL}\x1b[31m\n")
    (folder.parent / "secret").mkdir()
    for name in ("run.json", "metrics.jsonl", "recipe.toml", "trainer.log"):
        (folder.parent / "secret" / name).write_text('{"secret": "topsecret"}\n')
    return folder


@pytest.fixture(scope="module")
def watched(runs):
    with Watch(runs) as watch:
        yield watch


def values(content, title):
    """The JSON of the chart with that title."""
    return json.loads(re.search(rf"<h3>{title}</h3>.*?<script type=\"application/json\">(.*?)</script>", content, re.S)[1])


def test_the_page_of_a_run_is_its_report(runs, tmp_path):
    done = trainer("report", runs / "one", "--output", tmp_path / "report.html")
    assert done.returncode == 0, done.stderr
    frozen = (tmp_path / "report.html").read_text()
    with Watch(runs / "one") as watch:
        text = watch.get()
        for block, (_, content) in watch.blocks().items():
            assert content in text
            if block != "foot":  # when it was made
                assert content in frozen, block
        assert {"Loss", "Throughput", "Step time"} <= set(re.findall("<h3>(.*?)</h3>", text))


def test_what_a_run_adds_is_in_the_next_answer_and_only_that(tmp_path):
    run = write_run(tmp_path / "run")
    with Watch(run) as watch:
        first = watch.blocks()
        assert values(first["learning"][1], "Loss")["l"][0]["x"][-1] == 50
        have = ",".join(version for version, _ in first.values())
        assert not any(content for _, content in watch.blocks(have).values())

        append(run, range(51, 61))
        with open(run / "metrics.jsonl", "a") as file:
            file.write('{"step": 61, "lo')  # being written
        new = watch.blocks(have)
        line = values(new["learning"][1], "Loss")["l"][0]
        assert line["x"][-1] == 60 and line["y"][-1] == pytest.approx(100 / 60, rel=1e-3)
        assert not new["recipe"][1] and not new["classes"][1]

        (run / "trainer.log").write_text("brim: epoch 5\n")
        with open(run / "metrics.jsonl", "a") as file:
            file.write('ss": 1}\n' + json.dumps({"step": 61, "text": "Once <upon> a time"}) + "\n")
        (run / "new.json").write_text(json.dumps({"device": "cuda:3"}))
        (run / "new.json").rename(run / "run.json")
        newer = watch.blocks()
        assert "brim: epoch 5" in newer["log"][1] and "cuda:3" in newer["environment"][1]
        assert "Once &lt;upon&gt; a time" in newer["texts"][1]


def test_a_resumed_run_is_read_again(tmp_path):
    run = write_run(tmp_path / "run")
    with Watch(run) as watch:
        watch.get()
        lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
        (run / "cut.jsonl").write_text("".join(lines[:20]))
        (run / "cut.jsonl").rename(run / "metrics.jsonl")
        append(run, [21])
        assert values(watch.blocks()["learning"][1], "Loss")["l"][0]["x"] == list(range(1, 22))


def test_a_real_run_is_followed_while_it_trains(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    with Watch(folder) as watch:
        assert "<tbody></tbody>" in watch.get()  # nothing yet
        run = start("--recipe", DIGITS, "--output", folder / "digits",
                    *sets(train__steps=10**6, eval__every_epochs=0, telemetry__every_steps=1, telemetry__tensorboard=False))
        try:
            watch.wait_for(lambda text: 'href="/run/digits"' in text)
            seen = []

            def has_grown(_):
                found = re.search(r"<h3>Loss</h3>", watch.get("/run/digits"))
                if found:
                    seen.append(values(watch.get("/run/digits"), "Loss")["l"][0]["x"][-1])
                return len(set(seen)) > 1

            watch.wait_for(has_grown)
        finally:
            run.terminate()
            run.communicate(timeout=LIMIT_S)
        assert run.returncode == 75


def test_the_table_lists_runs_with_links_to_their_pages(runs, watched):
    text = watched.get()
    assert re.findall(r'<td><a href="([^"]*)">', text) == [
        "/run/%3Cb%20onclick%3Dx%3E%26amp%3B", "/run/one", "/run/team/two%20words"]
    row = re.search(r"<tr>(?:(?!</tr>).)*two words.*?</tr>", text, re.S)[0]
    cells = [html.unescape(re.sub("<.*?>", "", cell)) for cell in re.findall("<td.*?</td>", row)]
    assert cells[0] == "team/two words" and cells[1:3] == ["top1 97.5", "50"]
    assert float(cells[3]) == pytest.approx(640, rel=0.02) and cells[10] == "mlp"
    changed = time.localtime((runs / "team" / "two words" / "metrics.jsonl").stat().st_mtime)
    assert time.strftime("%Y-%m-%d %H:%M:%S", changed) in cells
    assert "two words</h1>" in watched.get("/run/team/two%20words")


def test_nothing_outside_the_folder_is_shown(runs, watched):
    for target in ("/../secret/run.json", "/run/../secret", "/run/..%2fsecret", "/run/%2e%2e/secret", "/run/one/../../secret",
                   "/run//etc/passwd", "//etc/passwd", "/run/", "/sweep/", "/sweep/..", "/run.json", "/run/one/run.json",
                   "/run/one%00", "/etc/passwd", f"/run/{runs.parent}/secret", "/?x=/../secret", "/run/one?file=../secret"):
        answer = watched.raw(target)
        assert "topsecret" not in answer and "root:" not in answer, target
        assert answer.startswith("HTTP/1.1 404 ") or "?" in target, (target, answer[:100])


def test_links_out_of_the_folder_are_not_followed(runs, tmp_path):
    folder = tmp_path / "runs"
    secret = runs.parent / "secret"
    files = ("run.json", "metrics.jsonl", "recipe.toml", "trainer.log")
    for name in files:
        run = write_run(folder / f"links {name}")
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(secret / name)
    (folder / "it's whole").symlink_to(secret)
    (folder / "no run").symlink_to(secret.parent)
    within = write_run(folder / "within")
    (within / "recipe.toml").rename(folder / "shared.toml")
    (within / "recipe.toml").symlink_to("../shared.toml")
    (folder / "newest").symlink_to("within")
    shots = write_run(folder / "shots", record={"sample_predictions": {"step": 1, "random": [], "worst": [
        {"file": "samples/worst-01.png", "label": "a", "prediction": "b", "confidence": 1, "loss": 1, "sample": "x"}]}})
    (secret / "worst-01.png").write_bytes(b"\x89PNG\r\n\x1a\ntopsecret")
    (shots / "samples").symlink_to(secret)
    with Watch(folder) as watch:
        table = watch.get()
        names = [html.unescape(name) for name in re.findall('<td><a href="[^"]*">(.*?)</a>', table)]
        assert sorted(names) == sorted(["shots", "within", *(f"links {file}" for file in files)])
        notes = [html.unescape(note) for note in re.findall('<p class="note">(.*?)</p>', table)]
        link = str(folder / "it's whole")
        quoted = "'" + link.replace("'", "'\\''") + "'"
        assert notes == [f"{link}: a run is left out because its folder is a link that leads out of the folder that is "
                         f"watched. Watch it by itself: trainer watch {quoted}"]
        assert table.count("leads out of the folder") == 1 + len(files)
        for name in files:
            text = watch.get(f"/run/links%20{name.replace('.', '%2E')}", status=503)
            assert "topsecret" not in text and f"{name}: a link that leads out of the folder" in text
        assert "mlp" in watch.get("/run/within")
        assert "<img" not in watch.get("/run/shots")
        write_run(folder / "later")
        watch.wait_for(lambda text: ">later<" in text)  # it has looked for runs again
        watch.process.terminate()
        _, log = watch.process.communicate(timeout=LIMIT_S)
        assert log.count("warning: ") == 1 and f"warning: {notes[0]}\n" in log
    with Watch(folder / "it's whole") as watch:
        assert "topsecret" in watch.get()


def test_what_runs_say_stays_text(watched):
    page = watched.get("/run/%3Cb%20onclick%3Dx%3E%26amp%3B")
    policy = watched.headers["Content-Security-Policy"]
    (nonce,) = re.findall(r"script-src 'nonce-(\w{32})'", policy)
    assert "default-src 'none'" in policy and "unsafe-inline" not in policy.split("style-src")[0]
    assert watched.headers["X-Content-Type-Options"] == "nosniff"
    assert set(re.findall(r"<script[^>]*>", page)) == {'<script type="application/json">', f'<script nonce="{nonce}">'}
    for text in (page, watched.get()):
        assert "<img" not in text and "<b onclick" not in text and "\x1b" not in text
    watched.get("/run/one")
    assert nonce not in watched.headers["Content-Security-Policy"]  # a new one each time
    watched.get("/run/one?have=")
    assert "script-src 'none'" in watched.headers["Content-Security-Policy"]


def browser(folder, url, *options):
    if BROWSER is None:
        pytest.skip("no chromium on this system; scripts/setup --tests installs it where packaged")
    done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000",
                           f"--user-data-dir={folder / 'profile'}", "--dump-dom", *options, url],
                          capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_in_a_browser_no_script_of_a_run_runs_and_the_page_is_alive(watched, tmp_path):
    text = browser(tmp_path, watched.url("/run/%3Cb%20onclick%3Dx%3E%26amp%3B"))
    assert "<title>owned" not in text and "<title>&lt;b onclick=x&gt;&amp;amp;</title>" in text
    assert '<span role="status">Live</span>' in text and 'class="lost"' not in text
    assert "Arrow keys read values" in text  # the page's own script ran


def test_in_a_browser_changes_take_their_place_and_the_readers_choices_stay(tmp_path):
    run = write_run(tmp_path / "run", eval_loss=1.0)
    with Watch(run) as watch:
        page = watch.get()
        append(run, [51, 52], eval_loss=0.5)
        changes = watch.get("/?have=" + ",".join(re.findall(r'data-version="(\w+)"', page)))
    changes = json.dumps(changes).replace("<", r"\u003c")
    stub = f"""<script>
        const changes = {changes};
        let asked = 0;
        window.fetch = async url => {{
          if (++asked === 1) {{
            [...document.querySelectorAll('.legend button')].find(b => b.textContent === 'evaluation').click();
            document.querySelector('.chart .plot > .area').focus();
            document.querySelector('summary').click();
          }}
          return new Response(changes);
        }};
        setTimeout(() => {{ document.getElementById('seen').textContent = JSON.stringify([asked,
            document.querySelector('.chart .plot > .area').getAttribute('aria-label'),
            [...document.querySelectorAll('.chart')][0].querySelectorAll('.legend button[aria-pressed=false]').length,
            document.activeElement === document.querySelector('.chart .plot > .area'),
            document.querySelector('details').open]); }}, 2500);
        </script><pre id=seen></pre>"""
    file = tmp_path / "page.html"
    file.write_text(page.replace("<main>", "<main>" + stub))
    text = browser(tmp_path, file.as_uri())
    asked, label, off, is_focused, is_open = json.loads(html.unescape(re.search(r'<pre id="seen">(.+?)</pre>', text)[1]))
    assert asked >= 2 and "evaluation 0.5" in label and off == 1 and is_focused and is_open


def test_other_names_of_this_machine_are_refused(watched):
    for host in (f"evil.example:{watched.port}", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "[::2]"):
        assert "trainer watch" in watched.get(host=host, status=421)
        assert "two words" not in watched.get(host=host, status=421)
    for host in (f"localhost:{watched.port}", "127.0.0.1:9", "[::1]:8000", "127.0.0.2"):
        watched.get(host=host)


def test_stuck_clients_keep_no_one_waiting(watched):
    stuck = [socket.create_connection(("127.0.0.1", watched.port)) for _ in range(8)]
    for client in stuck[:4]:
        client.sendall(b"GET / HT")
    watched.get()
    for client in stuck:
        client.close()


@pytest.mark.parametrize("words, status, message", [
    (["--listen", "8000"], 2, "--listen 8000: there is no port; expected ADDRESS:PORT"),
    (["--listen", "127.0.0.1:70000"], 2, "the port is not a number from 0 to 65535"),
])
def test_wrong_addresses_are_refused(runs, words, status, message):
    done = trainer("watch", runs, *words)
    assert done.returncode == status and message in done.stderr


def test_an_address_in_use_is_said(runs, watched):
    done = trainer("watch", runs, "--listen", f"127.0.0.1:{watched.port}")
    assert done.returncode == 5
    assert f"cannot listen on 127.0.0.1:{watched.port}: Address already in use; choose another with --listen" in done.stderr


def test_what_is_no_folder_is_refused(tmp_path):
    assert trainer("watch", tmp_path / "gone").returncode == 3
    (tmp_path / "file").write_text("")
    done = trainer("watch", tmp_path / "file")
    assert done.returncode == 3 and "found a file" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_it_at_once(runs, number):
    with Watch(runs) as watch:
        client = socket.create_connection(("127.0.0.1", watch.port))  # one that is being served
        watch.process.send_signal(number)
        assert watch.process.wait(timeout=10) == 0
        client.close()


def test_a_sweep_has_its_page(tmp_path):
    folder = tmp_path / "sweeps" / "lr"
    done = trainer("sweep", DIGITS, "--vary", "optimizer.learning_rate=0.01,0.1", "--output", folder, "--devices", "cpu",
                   *sets(train__steps=10, telemetry__every_steps=5))
    assert done.returncode == 0, done.stderr
    with Watch(folder.parent) as watch:
        table = watch.get()
        assert '<a href="/sweep/lr">lr</a>' in table and "/run/lr/trials/" in table
        page = watch.get("/sweep/lr")
        assert "2 of 2 trials done" in page and "Settings and results" in page and "<h2>Over the steps</h2>" in page
        assert "best top1" in page and "made" not in page.split("</style>")[1].split("<script nonce")[0].lower()
        secret = tmp_path / "secret"
        secret.mkdir()
        (secret / "recipe.toml").write_text("topsecret")
        for trial in (folder / "trials").iterdir():
            (trial / "recipe.toml").unlink()
            (trial / "recipe.toml").symlink_to(secret / "recipe.toml")
    with Watch(folder) as watch:
        assert '<a href="/sweep/">lr</a>' in watch.get()
        text = watch.get("/sweep/", status=503)
        assert "topsecret" not in text and "leads out of the folder" in text
