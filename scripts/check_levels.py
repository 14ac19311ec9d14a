#!/usr/bin/env python3
"""Checks that includes only point down: to an earlier row of LEVELS, or inside their own folder.

Run by the build (target check_levels). The table is the one in CONTRIBUTING.md; tests and
benchmarks may include anything.
"""
import pathlib
import re
import sys

LEVELS = ["base", "recipe", "device", "site", "nn", "amp", "optim", "data", "distributed",
          "checkpoint", "text", "telemetry", "tune", "plan", "train", "experiment", "sweep", "doctor",
          "history", "watch", "cli"]
# The CUDA half implements interfaces of these folders; models see only what a model needs.
CUDA_MAY_INCLUDE = {"base", "device", "nn", "amp", "optim", "data", "distributed", "cuda"}
MODELS_MAY_INCLUDE = {"base", "recipe", "nn"}
LAUNCH_MAY_INCLUDE = {"base", "launch"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"((?:framework|models)/[^"]+)"', re.M)


def allowed(owner, path):
    parts = path.split("/")
    folder = parts[1]
    if parts[0] == "models":  # only the registry, and only from the top
        return owner == "models" or (owner == "cli" and path == "models/register.h")
    if owner == "models":
        return folder in MODELS_MAY_INCLUDE
    if owner == "cuda":
        return folder in CUDA_MAY_INCLUDE
    if folder == "launch":  # the launcher is a program, and the trainer starts its own ranks by it
        return owner in ("launch", "cli")
    if owner == "launch":
        return folder in LAUNCH_MAY_INCLUDE
    if owner not in LEVELS or folder not in LEVELS:
        return False
    return LEVELS.index(folder) <= LEVELS.index(owner)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    bad = []
    for top in ("framework", "models"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
                continue
            relative = file.relative_to(root)
            owner = "models" if top == "models" else relative.parts[1]
            text = file.read_text()
            for match in INCLUDE.finditer(text):
                if not allowed(owner, match.group(1)):
                    line = text.count("\n", 0, match.start()) + 1
                    bad.append(f"{relative}:{line}: {owner}/ may not include {match.group(1)}: "
                               "includes go to a lower level (see CONTRIBUTING.md)")
    print("\n".join(bad), file=sys.stderr, end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
