"""Every page that Brim makes, read by axe in a real browser: nothing that keeps a reader out."""
import html
import json
import pathlib
import re

import axe_core_python
import pytest

from test_watch import Watch, browser
from trainer import DIGITS, sets, trainer

AXE = (pathlib.Path(axe_core_python.__file__).parent / "axe.min.js").read_text()
RUN = """addEventListener('load', () => axe.run(document).then(found => {
  const list = document.createElement('pre');
  list.id = 'found';
  list.textContent = JSON.stringify([found.passes.length, found.violations.map(one => [one.id, one.nodes[0].html])]);
  document.body.append(list);
}))"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Each page's text by its name."""
    folder = tmp_path_factory.mktemp("pages")

    def run(*args):
        done = trainer(*args, cwd=folder)
        assert done.returncode == 0, done.stderr

    for name, rate in (("one", 0.1), ("two", 0.02)):
        run("--recipe", DIGITS, "--output", f"runs/{name}", *sets(optimizer__learning_rate=rate, train__epochs=2))
    run("report", "runs/one", "--output", "report.html")
    run("report", "runs/one", "runs/two", "--output", "comparison.html")
    run("profile", "--recipe", DIGITS, "--steps", 2, "--output", "profile")
    run("sweep", "--recipe", DIGITS, "--vary", "optimizer.learning_rate=0.01,0.1", "--vary", "model.hidden=16,32",
        *sets(train__epochs=1), "--output", "sweep")
    run("history", ".", "--output", "history.html")
    texts = {page.stem: page.read_text() for page in
             [*folder.glob("*.html"), folder / "profile" / "profile.html", folder / "sweep" / "sweep.html"]}
    with Watch(folder) as watch:
        texts.update({"watch": watch.get(), "watch run": watch.get("/run/runs/one"),
                      "watch sweep": watch.get("/sweep/sweep")})
    return texts


@pytest.mark.parametrize("name", ["report", "comparison", "profile", "sweep", "history", "watch", "watch run",
                                  "watch sweep"])
def test_a_reader_with_a_keyboard_or_a_screen_reader_is_not_kept_out(pages, name, tmp_path):
    text = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", pages[name])
    script = "<script>" + AXE.replace("</script", r"<\/script") + RUN + "</script></body>"
    page = tmp_path / "page.html"
    page.write_text(text.replace("</body>", script))
    for scheme in ("light", "dark"):  # a phone's width: what is wide scrolls there
        settings = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
        shown = browser(tmp_path, page.as_uri(), "--window-size=390,1000", *settings)
        found = re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)
        passed, violations = json.loads(html.unescape(found[1]))
        assert violations == [] and passed > 10, scheme
