# shellcheck shell=bash disable=SC2034
# Shared by the scripts in this folder; sourced, never run. They all work from the repository's root.

unset CDPATH  # which has cd print where it went
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

# What the caller's environment tells Python and pip is for other programs: they would take packages
# that lie elsewhere for those of .venv, or install there.
forget_python() { unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX; }

# The program named, from .venv where scripts/setup had to bring a newer one.
tool() { if [[ -x $venv/bin/$1 ]]; then echo "$venv/bin/$1"; else echo "$1"; fi; }

# Prints the part of a text file that follows `usage:` in its opening comment.
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; }

# hold_lock FILE: one process at a time, until this shell ends; says for whom it waits.
hold_lock() {
  local holder
  exec 9>>"$1"
  if ! flock --nonblock 9; then
    holder=$(tail -1 "$1")
    say "waiting for ${holder:-another call}, which is at work in $root"
    flock 9
  fi
  # On a full disk without a name: what needs the disk says so.
  { echo "process $$ ($(tr '\0' ' ' </proc/$$/cmdline | sed 's/ $//'))" >"$1"; } 2>/dev/null || true
}

# Megabytes that are free on the repository's disk.
free_disk() { df -Pm "$root" | awk 'NR == 2 { print $4 }'; }

# need_disk MEGABYTES TEXT: ends where the repository's disk has less than TEXT needs.
need_disk() {
  local free
  free=$(free_disk)
  ((free >= $1)) || die 5 "$2 needs $1 MB of free disk in $root; $free MB are free"
}

# configure PRESET [cmake arguments…]: quiet where all is well, the whole log where not.
configure() {
  local preset=$1 log=build/$1.configure.log cache=build/$1/CMakeCache.txt had_cache=no
  shift
  mkdir -p build
  [[ ! -e $cache ]] || had_cache=yes
  "$(tool cmake)" --preset "$preset" "$@" >"$log" 2>&1 && return
  # The cache of an older build may name a folder, compiler or LibTorch that is gone.
  if [[ $had_cache == yes ]]; then
    say "configuring build/$preset failed with the settings of an earlier build; again without them"
    cp "$cache" "$cache.old"
    "$(tool cmake)" --fresh --preset "$preset" "$@" >"$log" 2>&1 && return
    mv "$cache.old" "$cache"
  fi
  cat "$log" >&2
  die 1 "configuring build/$preset failed"
}

# build PRESET TARGET…: how far it is and the time left, as a live line on a terminal, else a line
# for each tenth of the way; compiler messages in full; everything in build/PRESET.log.
build() {
  local preset=$1 log=build/$1.log line done_steps all_steps tenth=0 started=$SECONDS left is_stopped=no
  shift
  local pattern='^\[([0-9]+)/([0-9]+)\]' cache
  # ccache fails where it can't make its folder: the home folder may be another user's, or missing.
  cache=$(ccache --get-config cache_dir 2>/dev/null || true)
  [[ -z $cache ]] || { mkdir -p "$cache" && [[ -w $cache ]]; } 2>/dev/null ||
    export CCACHE_DIR=$root/build/ccache
  # ninja catches it, and ends as if the build had failed; what reads its lines reads them to the end.
  trap 'is_stopped=yes' INT
  if ! NINJA_STATUS='[%f/%t] ' ninja -C "build/$preset" "$@" 2>&1 | tee -i "$log" | {
    trap '' INT
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
    done
  }; then
    trap - INT
    if [[ $is_stopped == yes ]]; then
      say "stopped; the same call continues the build"
      kill -INT "$BASHPID"
    fi
    grep -m1 -E '^ninja: error' "$log" >&2 || true
    if grep -q 'No space left on device' "$log" || (($(free_disk) < 16)); then
      die 5 "building build/$preset failed: no space left on the disk of $root; free some, the same call continues"
    fi
    die 1 "building build/$preset failed; the whole log is $root/$log"
  fi
  trap - INT
}
