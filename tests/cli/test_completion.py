"""Completion, in a real bash, zsh and fish: what pressing Tab offers, and what it makes of the line."""
import os
import pty
import re
import subprocess
import termios
import time

import pytest

from trainer import SOURCE, TRAINER, environment, trainer

COMMANDS = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +\S", trainer("--help").stdout, re.MULTILINE)
FIRSTS = {command.split()[0] for command in COMMANDS}
RECIPES = {path.stem for path in (SOURCE / "recipes").glob("*.toml")}
FILES = ("flowers.toml", "notes.txt", "bench.json")
LIMIT_S = 60  # only to catch a hang

# Each logs what is offered, and at Ctrl-T the line as it stands.
BASH = """
source <({trainer} completion bash)
logged() {{ _trainer "$@"; printf '%s\\n' "${{COMPREPLY[@]}}" >>{log}; }}
complete -o default -F logged trainer
show() {{ printf 'line:%s\\n' "$READLINE_LINE" >>{log}; }}
bind -x '"\\C-t": show'
echo line: >>{log}
"""
ZSH = """
autoload -Uz compinit && compinit -u -D
source <({trainer} completion zsh)
compadd() {{
  local -a hits
  builtin compadd -O hits "$@"
  print -rl -- $hits >>{log}
  builtin compadd "$@"
}}
show() {{ print -r -- "line:$BUFFER" >>{log} }}
zle -N show
bindkey '^T' show
unsetopt auto_list prompt_cr prompt_sp
echo line: >>{log}
"""


class Terminal:
    """A shell at a terminal, in a folder with FILES."""

    def __init__(self, shell, folder):
        self.log = folder / "log"
        here = folder / "here"
        here.mkdir()
        for name in FILES:
            (here / name).touch()
        start = {"bash": (BASH, folder / ".bashrc", ["bash", "--noprofile", "--rcfile", folder / ".bashrc", "-i"]),
                 "zsh": (ZSH, folder / ".zshrc", ["zsh", "-d", "-i"])}
        text, rc, command = start[shell]
        rc.write_text(text.format(trainer=TRAINER, log=self.log))
        self.leader, follower = pty.openpty()
        flags = termios.tcgetattr(follower)
        flags[3] &= ~termios.ECHO
        termios.tcsetattr(follower, termios.TCSANOW, flags)
        env = {**environment(), "TERM": "dumb", "HOME": str(folder), "ZDOTDIR": str(folder), "INPUTRC": "/dev/null",
               "PS1": "", "HISTFILE": ""}
        self.process = subprocess.Popen(command, cwd=here, env=env, stdin=follower, stdout=follower, stderr=follower,
                                        start_new_session=True)
        os.close(follower)
        self.seen = 0
        self.wait()

    def wait(self):
        """What was logged before the next `line:`, and what that says."""
        os.set_blocking(self.leader, False)
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            try:
                os.read(self.leader, 65536)  # the shell writes on
            except OSError:
                pass
            text = self.log.read_text()[self.seen:] if self.log.exists() else ""
            if found := re.match(r"((?:(?!line:).*\n)*)line:(.*)\n", text):
                self.seen += found.end()
                return set(found[1].split("\n")) - {""}, found[2]
            time.sleep(0.005)
        raise AssertionError("the shell does not answer")

    def press_tab(self, line):
        """What is offered, and the line that results."""
        os.write(self.leader, f"\x15{line}\t\x14".encode())
        return self.wait()

    def close(self):
        os.close(self.leader)
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module", params=["bash", "zsh"])
def terminal(request, tmp_path_factory):
    made = Terminal(request.param, tmp_path_factory.mktemp(request.param))
    yield made
    made.close()


@pytest.fixture(scope="module")
def fish(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fish")
    (folder / "trainer.fish").write_text(trainer("completion", "fish").stdout)
    for name in FILES:
        (folder / name).touch()

    def offers(line):
        done = subprocess.run(["fish", "--no-config", "-c", 'source trainer.fish; complete --do-complete "$argv"', line],
                              capture_output=True, text=True, cwd=folder, env={**environment(), "HOME": str(folder)})
        assert (done.returncode, done.stderr) == (0, "")
        return {row.split("\t")[0] for row in done.stdout.splitlines()}
    return offers


OFFERED = [
    ("trainer ", FIRSTS),
    ("trainer data ", {"inspect", "pack", "tokenize", "bench"}),
    ("trainer help recipe ", {"check", "show", "schema", "reference"}),
    ("trainer data pack --s", {"--samples", "--shard-mib", "--seed"}),
    ("trainer completion ", {"bash", "zsh", "fish"}),
    ("trainer export runs/digits --format t", {"torchvision", "timm", "torchscript"}),
    ("trainer train digits --set optimizer.l", {"optimizer.layer_decay=", "optimizer.learning_rate="}),
    ("trainer bench digits --sweep batch.g", {"batch.global="}),
    ("trainer help sweep ", {"status", "pause", "resume", "cancel", "add"}),
    ("trainer sweep digits --per", {"--per-device"}),
    ("trainer sweep status x --", {"--folder", "--watch", "--csv", "--json", "--help"}),
]


@pytest.mark.parametrize("line, offers", OFFERED, ids=[line for line, _ in OFFERED])
def test_bash_and_zsh_offer(terminal, line, offers):
    assert terminal.press_tab(line)[0] == offers


@pytest.mark.parametrize("line, offers", OFFERED, ids=[line for line, _ in OFFERED])
def test_fish_offers(fish, line, offers):
    assert fish(line) == offers


MADE = [
    ("trainer tu", "trainer tune "),
    ("trainer --rec", "trainer --recipe "),
    ("trainer --recipe conv", "trainer --recipe convnext_tiny "),
    ("trainer --recipe=conv", "trainer --recipe=convnext_tiny "),
    ("trainer train dig", "trainer train digits "),
    ("trainer train flo", "trainer train flowers.toml "),
    ("trainer tune digits --config c", "trainer tune digits --config cpu "),
    ("trainer recipe show vit", "trainer recipe show vit_s16 "),
    ("trainer recipe sh", "trainer recipe show "),
    ("trainer help data in", "trainer help data inspect "),
    ("trainer sweep stat", "trainer sweep status "),
    ("trainer sweep conv", "trainer sweep convnext_tiny "),
    ("trainer sweep --as", "trainer sweep --asha "),
    ("trainer sweep digits --vary optimizer.learn", "trainer sweep digits --vary optimizer.learning_rate="),
    ("trainer train digits --dry", "trainer train digits --dry-run "),
    ("trainer train digits --resume a", "trainer train digits --resume auto "),
    ("trainer train digits --output no", "trainer train digits --output notes.txt "),
    ("trainer compare ben", "trainer compare bench.json "),
    ("trainer train digits --set optimizer.learn", "trainer train digits --set optimizer.learning_rate="),
    ("trainer train digits --set=optimizer.learn", "trainer train digits --set=optimizer.learning_rate="),
    ("trainer train digits --set optimizer.name=adamw --set schedule.warmup_",
     "trainer train digits --set optimizer.name=adamw --set schedule.warmup_start="),
    ("trainer train digits --set optimizer.name=s", "trainer train digits --set optimizer.name=sgd "),
    ("trainer train digits --set=optimizer.name=s", "trainer train digits --set=optimizer.name=sgd "),
    ("trainer train digits --set telemetry.tensorboard=t", "trainer train digits --set telemetry.tensorboard=true "),
    ("trainer train digits --set batch.micro=", "trainer train digits --set batch.micro=auto "),
]


@pytest.mark.parametrize("line, made", MADE, ids=[line for line, _ in MADE])
def test_tab_in_bash_and_zsh_makes(terminal, line, made):
    assert terminal.press_tab(line)[1] == made


@pytest.mark.parametrize("line, made", MADE, ids=[line for line, _ in MADE])
def test_fish_completes(fish, line, made):
    assert fish(line) == {made.split()[-1]}


def test_a_recipe_may_be_bundled_or_a_file(terminal, fish):
    assert terminal.press_tab("trainer train ")[0] == RECIPES | {"flowers.toml"}
    assert fish("trainer tune ") >= RECIPES | {"flowers.toml"}


def test_keys_are_those_of_the_reference(terminal, fish):
    keys = set()
    for section, part in re.findall(r"^###? \[([^\]]+)\][^\n]*\n(.*?)(?=^###? |\Z)",
                                    (SOURCE / "docs/recipe.md").read_text(), re.MULTILINE | re.DOTALL):
        if section != "sweep":  # the file of a sweep has it, not a run
            keys |= {f"{section}.{key}=" for key in re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)}
    assert len(keys) > 100
    assert terminal.press_tab("trainer --set ")[0] == fish("trainer --set ") == keys


def test_zsh_loads_it_from_a_folder_of_functions(tmp_path):
    (tmp_path / "_trainer").write_text(trainer("completion", "zsh").stdout)
    script = f"fpath=({tmp_path} $fpath); autoload -Uz compinit && compinit -u -D; print ${{_comps[trainer]}}"
    done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, env=environment())
    assert (done.returncode, done.stdout, done.stderr) == (0, "_trainer\n", "")
