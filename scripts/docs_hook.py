"""Pages that are made while MkDocs builds: the front page from README.md, the commands from `trainer help`, the
C++ API from the headers by Doxygen."""
import concurrent.futures
import os
import pathlib
import re
import subprocess

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOXYGEN = """
PROJECT_NAME = Brim
INPUT = framework models
RECURSIVE = YES
FILE_PATTERNS = *.h
EXTRACT_ALL = YES
JAVADOC_AUTOBRIEF = YES
GENERATE_LATEX = NO
HAVE_DOT = NO
CLASS_GRAPH = TEXT
VERBATIM_HEADERS = NO
QUIET = YES
WARNINGS = NO
HTML_OUTPUT = api
OUTPUT_DIRECTORY = {}
"""
TRAINER = ROOT / "build/release/bin/trainer"


def front_page():
    """README.md as docs/index.md: links into docs/ become the site's own; others point into the repository."""
    text = (ROOT / "README.md").read_text().replace("](docs/", "](")
    return re.sub(r"\[([^\]]+)\]\((?:CONTRIBUTING\.md|LICENSE|CITATION\.cff|SECURITY\.md)\)", r"`\1`", text)


def help_of(*words):
    return subprocess.run([TRAINER, "help", *words], text=True, check=True, capture_output=True).stdout


def commands_page():
    overview = help_of()
    page = ["# Commands", "", "Made from `trainer help`.", "", "```text", overview.rstrip(), "```", ""]
    names = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +\S", overview, re.MULTILINE)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name, text in zip(names, pool.map(lambda name: help_of(*name.split()), names)):
            page += [f"## trainer {name}", "", "```text", text.rstrip(), "```", ""]
    launcher = subprocess.run([TRAINER.parent / "trainrun", "--help"], text=True, check=True, capture_output=True)
    return "\n".join([*page, "## trainrun", "", "```text", launcher.stdout.rstrip(), "```", ""])


def recipe_sections():
    """docs/recipe.md as {section: its part of the page}."""
    parts = re.split(r"^(?=## \[)", (ROOT / "docs/recipe.md").read_text(), flags=re.MULTILINE)
    return {re.match(r"## \[([^\]]+)\]", part)[1]: part for part in parts[1:]}


def section_page(section):
    return f"reference/recipe/{section}.md"


def recipe_index(whole):
    """The page of all keys: what each section is about, its own keys, and the page that explains them."""
    page = whole[:whole.index("\n## [")]
    for section, part in recipe_sections().items():
        head = part.split("\n### ")[0]
        about = re.search(r"^## .*\n\n((?:[^|\n].*\n)*)", head)[1].strip()
        keys = ", ".join(re.findall(r"^\| (`[^`]+`) \|", head, re.MULTILINE))
        page += f"\n## [{section}]\n\n{about} [All of it]({section_page(section)}).\n\n{keys}\n"
    return page


def on_files(files, config):
    for path, make in {"index.md": front_page, "reference/cli.md": commands_page}.items():
        files.append(File.generated(config, path, content=make()))
    for section, part in recipe_sections().items():
        text = re.sub(r"^#(#+ )", r"\1", part, flags=re.MULTILINE)
        files.append(File.generated(config, section_page(section), content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links from a page to a source file lead somewhere in the repository only."""
    if page.file.src_uri == "recipe.md":
        markdown = recipe_index(markdown)
    return re.sub(r"\[([^\]]+)\]\((?:\.\./)+(?:framework|models|examples|scripts|tests|benchmarks|recipes|configs)"
                  r"(?:/[^)]*)?\)", r"\1", markdown)


def on_post_build(config):
    subprocess.run(["doxygen", "-"], input=DOXYGEN.format(config["site_dir"]), text=True, check=True, cwd=ROOT,
                   capture_output=True)  # its remarks on comments are not ours
