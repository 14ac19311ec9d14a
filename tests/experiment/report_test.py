"""Reports in a real browser: what is shown, light and dark, wide and narrow, and what is not run."""
import html.parser
import json
import math
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

BIN = pathlib.Path(os.environ["BRIM_BIN_DIR"])
PHASES = ["data_wait", "copy", "transform", "forward", "backward", "communication", "optimizer",
          "checkpoint", "evaluation", "other"]
# Debian's name, the full browser's, and what Ubuntu's snap and others install.
BROWSER = next(filter(None, map(shutil.which, ["chromium-headless-shell", "chromium",
                                               "google-chrome"])), None)


def write_run(folder, steps=500, every=10, name="run", recipe='[batch]\nglobal = 64\n', record=None,
              slow=1.0, **more):
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"device": "cpu", "seed": 1, **(record or {})}))
    (folder / "recipe.toml").write_text(f'[run]\nname = "{name}"\n{recipe}')
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(every, steps + 1, every):
            step_s = slow * (0.1 + 0.01 * math.sin(step))
            file.write(json.dumps({
                "step": step, "loss": 2 / (1 + step / 100), "learning_rate": 0.1 * (1 - step / steps),
                "step_s": step_s, "samples_per_s": 64 / step_s, "scale": 1.0,
                "phases_s": {phase: step_s / 9 for phase in PHASES}, **more}) + "\n")
            if step % 100 == 0:
                file.write(json.dumps({"step": step, "eval_loss": 1.0, "eval_top1": step / steps * 90,
                                       "eval_top5": 99.0, "eval_s": 0.1}) + "\n")
    return folder


def report(page, *runs):
    done = subprocess.run([BIN / "report_tool", page, *runs], capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    return page.read_text(encoding="utf-8")


def browser(page, *options, width=1280, height=1000):
    """What the browser prints."""
    if BROWSER is None:
        pytest.skip("no chromium on this system; scripts/setup --tests installs it where packaged")
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--virtual-time-budget=5000", f"--user-data-dir={page.parent / 'profile'}",
         f"--window-size={width},{height}", *options, page.as_uri()],
        capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_in(page, script, **size):
    """The value of a script that runs in a copy of the page."""
    copy = page.with_name("probed.html")
    probe = ("<pre id=probe></pre><script>document.getElementById('probe').textContent = "
             f"JSON.stringify((() => {{ {script} }})())</script>")
    copy.write_text(page.read_text(encoding="utf-8") + probe, encoding="utf-8")
    dom = browser(copy, "--dump-dom", **size)
    found = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.S)
    assert found, dom[-2000:]
    return json.loads(html.unescape(found.group(1)))


def screenshot(page, *options, **size):
    path = page.with_suffix(".png")
    browser(page, f"--screenshot={path}", *options, **size)
    return Image.open(path).convert("RGB")


@pytest.fixture
def two(tmp_path):
    a = write_run(tmp_path / "plain", record={"tuning": {"probes": [{"micro": 64, "fits": False}] + [
        {"micro": m, "samples_per_s": 100.0 * m, "peak_bytes": m << 28} for m in (8, 16, 32)]}},
        memory={"peak_bytes": 3 << 30}, device={"busy_percent": 70.0})
    b = write_run(tmp_path / "slower", slow=2.0, recipe='[batch]\nglobal = 128\n')
    page = tmp_path / "two.html"
    return page, report(page, a, b)


def test_all_charts_of_several_runs_are_drawn(two):
    page, text = two
    titles = run_in(page, "return [...document.querySelectorAll('.chart h3')].map(e => e.textContent)")
    assert titles == ["Loss", "Accuracy of evaluations", "Learning rate", "Throughput", "Step time",
                      "Memory", "Utilisation", "Batch tuning: speed", "Batch tuning: peak memory",
                      "plain", "slower"]
    # Every line has a size on the screen, and each run a colour of its own.
    boxes = run_in(page, "return [...document.querySelectorAll('svg .line, svg .area')].map(e => "
                         "{ const b = e.getBoundingClientRect(); return [b.width, b.height]; })")
    assert len(boxes) > 10 and all(width > 100 or height > 1 for width, height in boxes)
    grids = run_in(page, "return [...document.querySelectorAll('svg .grid')].map(e => "
                         "[e.getAttribute('d').split('M').length - 1, e.getBBox().width])")
    assert len(grids) >= 8 and all(lines >= 2 and width > 100 for lines, width in grids), grids
    legend = run_in(page, "return [...document.querySelector('.legend').children].map(e => e.textContent)")
    assert legend == ["plain, training", "slower, training", "plain, evaluation", "slower, evaluation"]
    assert "batch.global" in text and "Peaks" not in text


def test_the_best_of_a_language_model_is_its_lowest_loss(tmp_path):
    run = write_run(tmp_path / "text", tokens_per_s=640.0)
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": 500, "eval_loss": 1.5, "eval_top1": 95}) + "\n")
    text = report(tmp_path / "one.html", run)
    assert "<span>best loss</span><b>1</b><small>last 1.5</small>" in text
    assert "best top1" not in text and "<span>evaluation loss" not in text
    both = report(tmp_path / "two.html", run, write_run(tmp_path / "images"))
    assert re.search(r"<th[^>]*>best top1</th><th[^>]*>best loss</th><th[^>]*>evaluation loss</th>", both)


@pytest.mark.parametrize("lost, words", [(0, None), (1, "1 of 50 recorded losses is not finite."),
                                         (50, "50 of 50 recorded losses are not finite.")])
def test_losses_that_are_not_finite_are_counted(tmp_path, lost, words):
    run = write_run(tmp_path / "run")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in [line for line in lines if "loss" in line][:lost]:
        line["loss"] = None
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = report(tmp_path / "page.html", run)
    assert (words or "run") in text and ("not finite" in text) == bool(words)


@pytest.mark.parametrize("peak, is_cut", [(0.26, False), (2.0, True)])
def test_peaks_that_are_said_to_be_cut_off_are(tmp_path, peak, is_cut):
    """A peak just above two and a half times the others is shown whole."""
    folder = write_run(tmp_path / "run", steps=2000)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if "step_s" in line:
            line["step_s"] = peak if line["step"] == 1000 else 0.1
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = report(tmp_path / "page.html", folder)
    assert ("Peaks up to" in text) == is_cut, re.findall("Peaks[^<]*", text)


def test_axes_have_their_values_and_the_pointer_shows_values(two):
    page, _ = two
    ticks = run_in(page, "return [...document.querySelector('.ys').children].map(e => e.textContent)")
    assert [float(tick) for tick in ticks] == [0.0, 0.5, 1.0, 1.5, 2.0]
    shown = run_in(page, """
        const area = document.querySelectorAll('.plot > .area')[3];
        const box = area.getBoundingClientRect();
        area.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width / 2, clientY: box.top + 5}));
        const tip = document.getElementById('tip');
        return [getComputedStyle(tip).display, [...tip.children].map(e => e.textContent)];""")
    assert shown[0] == "block"
    assert shown[1][0] == "step 250"
    speeds = [float(re.search(r"([\d.,]+) samples/s", row).group(1).replace(",", "")) for row in shown[1][1:]]
    assert speeds[0] == pytest.approx(2 * speeds[1], rel=0.01)


def test_the_faster_run_is_marked_and_differences_are_named(two):
    page, _ = two
    cells = run_in(page, "return [...document.querySelectorAll('td.best')].map(e => e.textContent)")
    assert len(cells) == 2 and cells[0] == "644"  # speed and step time; all else is equal or unknown
    rows = run_in(page, "return [...document.querySelectorAll('section:nth-of-type(4) tbody tr')].map(e => e.textContent)")
    assert rows == ["batch.global64128"]


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_nothing_is_wider_than_the_screen(two, width):
    page, _ = two
    wide = run_in(page, "return [innerWidth, document.documentElement.scrollWidth]", width=width)
    assert wide[1] <= wide[0] == width
    columns = run_in(page, "return getComputedStyle(document.querySelector('.grid2')).gridTemplateColumns",
                     width=width)
    assert len(columns.split()) == (1 if width < 760 else 2)
    smallest = run_in(page, """return Math.min(...[...document.querySelectorAll('.ys span, .xs span, td, th')]
        .map(e => parseFloat(getComputedStyle(e).fontSize)))""", width=width)
    assert smallest >= 11


def test_texts_do_not_lie_on_each_other_on_a_phone(tmp_path):
    run = write_run(tmp_path / "long", steps=1_234_560, every=1000)
    page = tmp_path / "page.html"
    report(page, run)
    overlaps = run_in(page, """
        let count = 0;
        for (const row of document.querySelectorAll('.xs')) {
          let before = -1;
          for (const tick of row.children) {
            const box = tick.getBoundingClientRect();
            if (box.left < before) ++count;
            before = box.right;
          }
        }
        return count;""", width=360)
    assert overlaps == 0


def test_light_and_dark_follow_the_reader(two):
    page, _ = two
    light = screenshot(page, "--blink-settings=preferredColorScheme=1", height=3000)
    dark = screenshot(page, "--blink-settings=preferredColorScheme=0", height=3000)

    def mean(image):
        return sum(image.resize((1, 1)).getpixel((0, 0))) / 3

    def colours(image):
        return {colour for _, colour in image.getcolors(image.width * image.height)}

    assert mean(light) > 200 and mean(dark) < 60
    # The first run's blue is on both, in the shade made for each.
    assert (37, 99, 235) in colours(light)
    assert (96, 165, 250) in colours(dark)


def test_nothing_that_a_run_says_becomes_part_of_the_page(tmp_path):
    evil = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'&"
    run = write_run(tmp_path / "<b onclick=x>&amp;", name="x", recipe=f"# {evil}\n[a]\nb = '''{evil}'''\n",
                    record={"device": evil, "machine": {"cpu": evil, evil: evil},
                            "classes": [{"name": evil, "samples": 2, "correct": 1, "taken_for": {evil: 1}}]},
                    memory={evil.replace('"', "") + "_bytes": 1.0}, **{"eval_" + evil.replace('"', ""): 1})
    other = write_run(tmp_path / "two" / "<b onclick=x>&amp;")
    page = tmp_path / "page.html"
    report(page, run, other)
    title, images, scripts, bold = run_in(page, """return [document.title, document.images.length,
        document.scripts.length, document.querySelectorAll('b[onclick]').length]""")
    assert "owned" not in title and "<b onclick=x>&amp;" in title
    assert images == 0 and bold == 0
    charts = run_in(page, "return document.querySelectorAll('.chart').length")
    assert scripts == charts + 2  # one a chart, the page's own, and the probe
    assert evil in run_in(page, "return document.querySelector('pre').textContent")


def test_addresses_are_shown_without_what_may_be_secret(tmp_path):
    address = "https://me:secret@host/s-{000..127}.tar?sig=secret"
    run = write_run(tmp_path / "run", recipe=f'[data.train]\npath = "{address}"\n',
                    record={"command": f"trainer --set 'data.train.path={address}' --output x"})
    page = tmp_path / "page.html"
    report(page, run)
    text = page.read_text()
    assert "secret" not in text
    assert text.count("https://host/s-{000..127}.tar") == 2 and "--output x" in text


def test_a_confusion_matrix_has_a_cell_for_each_label_and_guess(tmp_path):
    classes = [{"name": "cat", "samples": 10, "correct": 7, "taken_for": {"cat": 7, "dog": 3}},
               {"name": "dog", "samples": 5, "correct": 5, "taken_for": {"dog": 5}}]
    page = tmp_path / "page.html"
    report(page, write_run(tmp_path / "run", record={"classes": classes}))
    rows = run_in(page, """return [...document.querySelectorAll('section')]
        .find(s => s.querySelector('h2').textContent == 'Classes').querySelector('table').innerText""").splitlines()
    cells = [row.split("\t") for row in rows]
    assert cells == [["label", "cat", "dog", "correct"], ["cat", "7", "3", "70.0 %"], ["dog", "", "5", "100.0 %"]]

    many = [{"name": f"class {i}", "samples": 10, "correct": i % 10} for i in range(300)]
    report(page, write_run(tmp_path / "many", record={"classes": many}))
    rows = run_in(page, """return [...document.querySelectorAll('section')]
        .find(s => s.querySelector('h2').textContent == 'Classes').querySelector('table').innerText""").splitlines()
    assert rows[0].split("\t")[0] == "hardest of 300 classes" and len(rows) == 21
    assert [row.split("\t")[0] for row in rows[1:4]] == ["class 0", "class 10", "class 20"]

    damaged = ("x", [1], [{"name": 3}], [{"name": "a", "samples": -1, "correct": "x", "taken_for": []}])
    for i, classes in enumerate(damaged):
        text = report(page, write_run(tmp_path / f"damaged {i}", record={"classes": classes}))
        assert "Where the time went" in text


PIXELS = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)


def write_samples(folder, entries):
    """Images of 8 × 8 pixels for entries of run.json's "sample_predictions"/"worst"."""
    (folder / "samples").mkdir()
    for entry, pixels in zip(entries, PIXELS):
        if entry["file"].startswith("samples/"):
            Image.fromarray(pixels).save(folder / entry["file"], format="PNG")


def sample(number, **more):
    return {"file": f"samples/worst-{number:02}.png", "sample": f"eval/{number}.png", "label": "cat",
            "prediction": "dog", "confidence": 0.987, "loss": 4.2, **more}


def test_samples_are_shown_with_label_prediction_and_confidence(tmp_path):
    entries = [sample(i, label="dog" if i == 2 else "a cat with quite a long name") for i in range(12)]
    run = write_run(tmp_path / "run", record={"sample_predictions": {"step": 9, "worst": entries, "random": []}})
    write_samples(run, entries)
    page = tmp_path / "page.html"
    report(page, run)
    shown = run_in(page, """return [...document.querySelectorAll('.samples li')].map(e =>
        [e.title, e.querySelector('img').alt, e.querySelector('img').naturalWidth, e.innerText])""")
    assert len(shown) == 12 and all(width == 8 for _, _, width, _ in shown)
    assert shown[0][:2] == ["eval/0.png", "image labelled a cat with quite a long name, predicted dog with 99 % confidence"]
    assert shown[0][3].split("\n") == ["✗ dog", "99 %", "label a cat with quite a long name"]
    assert shown[2][3].startswith("✓ dog")
    for width in (360, 390, 1280):
        wide, boxes = run_in(page, """return [document.documentElement.scrollWidth,
            [...document.querySelectorAll('.samples li')].map(e => {
                const b = e.getBoundingClientRect(), i = e.querySelector('img').getBoundingClientRect();
                return [b.left, b.right, i.width, i.height]; })]""", width=width)
        assert wide <= width
        assert all(left >= 0 and right <= width and w >= 90 and abs(w - h) < 1 for left, right, w, h in boxes)
    other = write_run(tmp_path / "other")
    assert "Sample predictions" not in report(tmp_path / "both.html", run, other)


def test_what_samples_say_stays_text_and_in_the_folder(tmp_path):
    evil = "\"><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'&"
    Image.fromarray(PIXELS[0]).save(tmp_path / "secret.png")
    entries = [sample(1, label=evil, prediction=evil, sample=evil),
               *(sample(2, file=file) for file in ("../secret.png", "samples/../../secret.png", "/etc/passwd",
                                                   "samples/gone.png", "samples/", "samples/text.png", evil)),
               sample(3, file=7), sample(4, confidence="x"), "x", [sample(5)], sample(6, label=[1], confidence=1e300)]
    record = {"sample_predictions": {"step": 1, "worst": entries, "random": entries}}
    run = write_run(tmp_path / "run", record=record)
    write_samples(run, [sample(1), sample(4), sample(6)])
    (run / "samples" / "text.png").write_text("<script>document.title='owned'</script>")
    page = tmp_path / "page.html"
    text = report(page, run)
    title, sources, titles = run_in(page, """return [document.title, [...document.images].map(i => i.src.slice(0, 22)),
        [...document.querySelectorAll('.samples li')].map(e => e.title)]""")
    assert "owned" not in title and "owned" not in text.replace("owned&#39;", "")
    assert sources == ["data:image/png;base64,"] * 6 and titles[0] == evil
    for damaged in ("x", [1], {"worst": 3}, {"worst": [[]], "random": None}):
        shutil.rmtree(run)
        write_run(run, record={"sample_predictions": damaged})
        assert "Sample predictions" not in report(page, run)


# --- what the reader changes ---

CHANGE = r"""
const chart = document.querySelector('.chart'), area = chart.querySelector('.plot > .area');
const line = () => [...chart.querySelector('.line').getAttribute('d').matchAll(/[ML]([-\d.]+) ([-\d.]+)/g)].map(m => [+m[1], +m[2]]);
const texts = kind => [...chart.querySelectorAll(kind)].filter(e => e.offsetHeight > 0 && e.textContent).map(e => e.textContent);
const pointer = (kind, share) => { const box = area.getBoundingClientRect(); area.dispatchEvent(new PointerEvent(kind,
    {bubbles: true, pointerType: 'mouse', button: 0, clientX: box.left + share * box.width, clientY: box.top + 9})); };
const key = name => area.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true}));
const button = text => [...chart.querySelectorAll('button')].find(b => b.textContent === text);
const before = line();
"""


@pytest.fixture
def falling(tmp_path):
    """Losses of 1000 / step at steps 1 to 1000."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    with open(run / "metrics.jsonl", "w") as file:
        for step in range(1, 101):
            file.write(json.dumps({"step": 10 * step, "loss": 100 / step, "process_age_s": step}) + "\n")
            file.write(json.dumps({"step": 10 * step, "eval_loss": 200 / step}) + "\n")
    page = tmp_path / "page.html"
    report(page, run)
    return page


def test_dragging_zooms_in_and_two_clicks_show_the_whole_again(falling):
    zoomed, ticks, shown, after = run_in(falling, CHANGE + """
        pointer('pointerdown', 0.5); pointer('pointermove', 0.7); pointer('pointermove', 0.75); pointer('pointerup', 0.75);
        const zoomed = line(), ticks = texts('.xs span');
        pointer('pointermove', 0);
        const shown = document.getElementById('tip').firstChild.textContent;
        button('whole axis').click();
        return [zoomed, ticks, shown, line().every(([x, y], i) => x === before[i][0] && y === before[i][1])];""")
    inside = [(x, y) for x, y in zoomed if 0 <= x <= 1000]
    assert 24 <= len(inside) <= 27 and max(y for _, y in inside) - min(y for _, y in inside) > 50  # fills the height
    assert ticks == ["500", "550", "600", "650", "700", "750"] and shown == "step 500" and after


def test_two_fingers_zoom_to_what_they_hold(falling):
    whole, zoomed, moved, back = run_in(falling, CHANGE + """
        const finger = (kind, id, share) => { const box = area.getBoundingClientRect(); area.dispatchEvent(new PointerEvent(kind,
            {bubbles: true, pointerType: 'touch', pointerId: id, clientX: box.left + share * box.width, clientY: box.top + 9})); };
        const whole = texts('.xs span');
        finger('pointerdown', 1, 0.4); finger('pointermove', 1, 0.4);
        finger('pointerdown', 2, 0.6); finger('pointermove', 2, 0.8); finger('pointermove', 1, 0.2);
        const zoomed = texts('.xs span');  // a third of the axis, about its middle
        finger('pointerup', 2, 0.8); finger('pointermove', 1, 0.9);
        const moved = texts('.xs span');
        finger('pointerup', 1, 0.9);
        finger('pointerdown', 3, 0.1); finger('pointerdown', 4, 0.9);
        finger('pointermove', 4, 0.6); finger('pointermove', 3, 0.4);
        return [whole, zoomed, moved, texts('.xs span')];""")
    assert 333 <= int(zoomed[0]) <= 400 and 600 <= int(zoomed[-1]) <= 667, zoomed
    assert moved == zoomed and back == whole  # one finger alone reads


def test_keys_read_values_and_zoom(falling):
    values, zoomed, whole = run_in(falling, CHANGE + """
        area.focus();
        key('End');
        const tip = document.getElementById('tip'), values = [];
        for (const name of ['ArrowLeft', 'ArrowLeft', 'Home']) { key(name); values.push(tip.firstChild.textContent); }
        key('ArrowRight'); key('+');
        const zoomed = texts('.xs span');
        key('Escape');
        return [values, zoomed, texts('.xs span')];""")
    assert values == ["step 980", "step 960", "step 10"]
    assert zoomed == ["0", "100", "200"] and whole[-1] == "1000"


def test_log_scale_is_a_choice_where_values_are_positive(falling):
    pressed, heights, ticks, back = run_in(falling, CHANGE + """
        const pressed = [button('log').getAttribute('aria-pressed')];
        button('log').click();
        pressed.push(button('log').getAttribute('aria-pressed'));
        const ticks = texts('.ys span'), heights = line().map(point => point[1]);
        button('log').click();
        return [pressed, heights, ticks, line().every(([x, y], i) => y === before[i][1])];""")
    # The page itself chose the log scale, as values spread over more than two decades.
    assert pressed == ["true", "false"] and back
    assert [float(tick.replace(",", "")) for tick in ticks] == [0, 100, 200]
    # In proportion to 100 / step now: half of the way down is halfway between the highest and the lowest.
    low, high = heights[-1], heights[0]
    assert (low - heights[1]) / (low - high) == pytest.approx((50 - 1) / (100 - 1), abs=0.01)


def test_smoothing_follows_the_debiased_mean(falling):
    found, dots, back = run_in(falling, CHANGE + """
        const evaluation = () => chart.querySelectorAll('.line')[1].getAttribute('d').length;
        const input = document.querySelector('#smoothing input');
        const set = value => { input.value = value; input.dispatchEvent(new Event('input', {bubbles: true})); };
        set(0.9);
        pointer('pointermove', 1);
        const rows = [...document.getElementById('tip').querySelectorAll('b')].map(e => e.textContent);
        set(0);
        return [rows, document.querySelector('#smoothing').offsetHeight > 0, line().every(([x, y], i) => y === before[i][1])];""")
    total = weight = 0
    for step in range(1, 101):
        total, weight = 0.9 * total + 0.1 * 100 / step, 0.9 * weight + 0.1
    assert float(found[0]) == pytest.approx(total / weight, rel=1e-3)
    assert float(found[1]) == 2  # an evaluation stands for itself
    assert dots and back


def test_lines_are_hidden_by_their_names(falling):
    names, hidden, rows, shown = run_in(falling, CHANGE + """
        const names = [...chart.querySelectorAll('.legend button')].map(b => [b.textContent, b.getAttribute('aria-pressed')]);
        button('evaluation').click();
        pointer('pointermove', 0.5);
        const hidden = [...chart.querySelectorAll('.line')].map(e => getComputedStyle(e).display);
        const rows = document.getElementById('tip').querySelectorAll('b').length;
        button('evaluation').click();
        return [names, hidden, rows, getComputedStyle(chart.querySelectorAll('.line')[1]).display];""")
    assert names == [["training", "true"], ["evaluation", "true"]]
    assert hidden == ["inline", "none"] and rows == 1 and shown == "inline"


def test_controls_have_names_and_a_keyboard(falling):
    unnamed, small, label = run_in(falling, CHANGE + """
        const all = [...document.querySelectorAll('button, input, [tabindex]')].filter(e => e.offsetHeight > 0);
        return [all.filter(e => !(e.textContent.trim() || e.labels?.[0]?.textContent.trim() || e.getAttribute('aria-label'))).length,
                all.filter(e => e.tagName === 'BUTTON' && e.offsetHeight < 24).length, area.getAttribute('aria-label')];""", width=390)
    assert unnamed == 0 and small == 0
    assert label == "Loss: training 1, evaluation 2. Arrow keys read values, plus and minus zoom."


# --- by wall time ---


def write_aged_run(folder, ages):
    """A line a step: (age of the process, age of the run)."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    with open(folder / "metrics.jsonl", "w") as file:
        for step, (process, run) in enumerate(ages, 1):
            file.write(json.dumps({"step": step, "loss": 10 - step, "process_age_s": process, "run_age_s": run}) + "\n")
    return folder


TURN = "const turn = value => document.querySelector(`#axis input[value=${value}]`).click();"
PATH = r"""const xs = () => [...document.querySelector('.chart .line').getAttribute('d').matchAll(/[ML]([\d.]+) /g)]
    .map(m => +m[1]);"""


def test_charts_are_read_by_step_or_by_wall_time(tmp_path):
    run = write_aged_run(tmp_path / "run", [(30, 30), (60, 60), (90, 90), (240, 240), (300, 300)])
    page = tmp_path / "page.html"
    report(page, run)
    by_step, by_time, again, ticks, shown = run_in(page, TURN + PATH + """
        const steps = xs();
        turn('time');
        const times = xs(), visible = [...document.querySelector('.chart').querySelectorAll('.xs, .x-unit')]
            .filter(e => e.offsetHeight > 0).map(e => [...e.children].map(c => c.textContent).join() || e.textContent);
        const area = document.querySelector('.plot > .area'), box = area.getBoundingClientRect();
        area.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width * 0.79, clientY: box.top + 5}));
        const tip = [...document.getElementById('tip').children].map(e => e.textContent);
        turn('x');
        return [steps, times, xs(), visible, tip];""")
    assert by_step == again == [0, 250, 500, 750, 1000]
    assert by_time == [100, 200, 300, 800, 1000]
    assert ticks == ["0 min,1 min,2 min,3 min,4 min,5 min", "wall time"]
    assert shown == ["4 min, step 4", "training6"]


def test_restarts_are_marked_and_time_between_them_does_not_count(tmp_path):
    run = write_aged_run(tmp_path / "run", [(1, 1), (2, 2), (1, 4), (2, 5), (3, 6)])  # one second was lost
    page = tmp_path / "page.html"
    text = report(page, run)
    assert "Vertical lines: the run was resumed." in text
    step, seconds, marks = run_in(page, TURN + """
        const mark = () => document.querySelector('svg .mark').getBoundingClientRect().left -
            document.querySelector('.plot > .area').getBoundingClientRect().left;
        const width = document.querySelector('.plot > .area').clientWidth, step = mark() / width;
        turn('time');
        return [step, mark() / width, document.querySelectorAll('.chart')[0].querySelectorAll('svg .mark').length];""")
    assert marks == 1
    assert step == pytest.approx(1 / 4, abs=0.01)  # of steps 1 to 5
    assert seconds == pytest.approx(3 / 6, abs=0.01)


def test_bands_and_areas_turn_with_their_line(tmp_path):
    """2,000 steps, the second half ten times as slow: a band keeps its shape, and both ways its height."""
    run = write_run(tmp_path / "run", steps=20)
    age = 0
    with open(run / "metrics.jsonl", "w") as file:
        for step in range(1, 2001):
            age += 1 if step <= 1000 else 10
            file.write(json.dumps({"step": step, "loss": 2 + math.sin(step), "step_s": 0.1, "process_age_s": age,
                                   "phases_s": {phase: 0.01 for phase in PHASES}}) + "\n")
    page = tmp_path / "page.html"
    report(page, run)
    before, after = run_in(page, TURN + """
        const boxes = () => [...document.querySelectorAll('svg .band, svg .area')].map(e => {
            const b = e.getBBox(); return [b.x, b.y, b.width, b.height]; });
        const steps = boxes(); turn('time'); return [steps, boxes()];""")
    assert len(before) == 1 + len(PHASES)
    for (_, y, width, height), (_, y_after, width_after, height_after) in zip(before, after, strict=True):
        assert (y, height) == (y_after, height_after)
        assert width_after == pytest.approx(width, abs=8)
    half = run_in(page, TURN + PATH + "turn('time'); return xs().filter(x => x < 1000 / 11).length / xs().length;")
    assert half == pytest.approx(0.5, abs=0.02)


def test_the_choice_works_by_keyboard_and_only_where_there_are_times(tmp_path):
    run = write_aged_run(tmp_path / "run", [(1, 1), (2, 2), (3, 3)])
    page = tmp_path / "page.html"
    text = report(page, run)
    assert '<fieldset id="axis" hidden>' in text  # without the script there is nothing to choose
    found = run_in(page, """const axis = document.getElementById('axis'), inputs = [...axis.querySelectorAll('input')];
        inputs[0].focus();
        return [axis.offsetHeight > 0, axis.querySelector('legend').textContent, inputs.map(i => i.type),
                inputs.map(i => i.labels[0].textContent.trim()), new Set(inputs.map(i => i.name)).size,
                document.activeElement === inputs[0], inputs.every(i => i.tabIndex === 0)];""")
    assert found == [True, "Charts by", ["radio", "radio"], ["step", "wall time"], 1, True, True]
    assert "axis" not in report(page, write_run(tmp_path / "old")).split("</style>")[1].split("<script>")[0]
    # One run without times among others: its charts stay by step.
    report(page, run, tmp_path / "old")
    assert run_in(page, "return document.querySelectorAll('.by-time').length") == 0


def test_both_training_losses_are_in_one_chart_with_the_evaluation(tmp_path):
    run = write_run(tmp_path / "run", unsmoothed_loss=0.5)
    page = tmp_path / "page.html"
    report(page, run)
    legend = "return [...document.querySelector('.legend').children].map(e => e.textContent)"
    assert run_in(page, legend) == ["training", "evaluation", "training, without label smoothing"]
    report(page, run, write_run(tmp_path / "other"))
    titles = run_in(page, "return [...document.querySelectorAll('.chart h3')].map(e => e.textContent)")
    assert titles[:2] == ["Loss", "Training loss without label smoothing"]


def test_bytes_that_are_no_text_are_replaced(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "recipe.toml").write_bytes(b"# \xff\xfe\x00\xed\xa0\x80 \xc3\xa9\n")
    page = tmp_path / "page.html"
    assert "# \ufffd\ufffd\ufffd\ufffd\ufffd\ufffd \u00e9" in report(page, run)


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        self.found += [(tag, name, value) for name, value in attributes
                       if name in ("src", "href", "srcset", "action", "data", "poster")]


def test_the_page_asks_for_nothing_from_elsewhere(two):
    page, text = two
    links = Links()
    links.feed(text)
    assert links.found == []
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest", text)
    assert "default-src 'none'" in text
    assert run_in(page, "return performance.getEntriesByType('resource').length") == 0


def test_a_run_without_much_still_has_a_page(tmp_path):
    run = tmp_path / "empty"
    run.mkdir()
    (run / "run.json").write_text("{}")
    page = tmp_path / "page.html"
    text = report(page, run)
    assert "metrics.jsonl holds no step yet" in text and "recipe.toml is missing" in text
    assert "Not recorded by this run: evaluations, memory, utilisation, batch tuning" in text
    assert run_in(page, "return document.querySelectorAll('.chart').length") == 0


def test_a_long_run_stays_small_and_keeps_its_extremes(tmp_path):
    run = write_run(tmp_path / "long", steps=20)
    with open(run / "metrics.jsonl", "w") as file:
        for step in range(1, 100_001):
            loss = 97.53 if step == 61_234 else 1 + 0.1 * math.sin(step)
            file.write(f'{{"step":{step},"loss":{loss},"step_s":0.01}}\n')
    page = tmp_path / "page.html"
    text = report(page, run)
    assert len(text) < 200_000
    ticks = run_in(page, "return [...document.querySelector('.ys').children].map(e => e.textContent)")
    assert float(ticks[-1]) >= 50  # without the one high loss it would be near 1


def test_what_is_no_run_is_refused_in_words(tmp_path):
    done = subprocess.run([BIN / "report_tool", tmp_path / "page.html", tmp_path], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 3
    assert "error[data]" in done.stderr and "expected the folder of a run" in done.stderr
    assert not (tmp_path / "page.html").exists()
