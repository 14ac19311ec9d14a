# shellcheck shell=bash disable=SC2034
# Shared by the scripts in this folder; sourced, never run. They all work from the repository's root.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit
venv=$root/.venv

# Lines for people go to stderr: stdout belongs to the program that a script runs.
say() { echo "$(basename "$0"): $*" >&2; }

# die STATUS MESSAGE…: the exit statuses are those of the programs (framework/base/error.h).
die() {
  local status=$1
  shift
  case $status in
    5) echo "error[resource]: $*" >&2 ;;
    *) echo "error: $*" >&2 ;;
  esac
  exit "$status"
}

# The program named, from .venv where scripts/setup had to bring a newer one.
tool() { if [[ -x $venv/bin/$1 ]]; then echo "$venv/bin/$1"; else echo "$1"; fi; }

# Prints the part of a text file that follows `usage:` in its opening comment.
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; }

# configure PRESET [cmake arguments…]: quiet where all is well, the whole log where not.
configure() {
  local preset=$1 log=build/$1.configure.log
  shift
  mkdir -p build
  if ! "$(tool cmake)" --preset "$preset" "$@" >"$log" 2>&1; then
    cat "$log" >&2
    die 1 "configuring build/$preset failed"
  fi
}

# build PRESET TARGET…: how far it is and the time left, as a live line on a terminal, else a line
# for each tenth of the way; compiler messages in full; everything in build/PRESET.log.
build() {
  local preset=$1 log=build/$1.log line done_steps all_steps tenth=0 started=$SECONDS left
  shift
  local pattern='^\[([0-9]+)/([0-9]+)\]'
  if ! NINJA_STATUS='[%f/%t] ' ninja -C "build/$preset" "$@" 2>&1 | tee "$log" |
    while IFS= read -r line; do
      if [[ $line =~ $pattern ]]; then
        done_steps=${BASH_REMATCH[1]} all_steps=${BASH_REMATCH[2]}
        ((done_steps > 0)) || continue
        left=$(((SECONDS - started) * (all_steps - done_steps) / done_steps))
        line="build/$preset: $done_steps of $all_steps steps in $((SECONDS - started)) s, about $left s left"
        if [[ -t 2 ]]; then
          printf '\r\e[K%s' "$(basename "$0"): $line" >&2
          ((done_steps < all_steps)) || echo >&2
        elif ((done_steps * 10 / all_steps > tenth)); then
          tenth=$((done_steps * 10 / all_steps))
          say "$line"
        fi
      elif [[ $line != ninja:* ]]; then
        echo "$line" >&2
      fi
    done; then
    grep -m1 '^ninja: error' "$log" >&2 || true
    die 1 "building build/$preset failed; the whole log is $root/$log"
  fi
}
