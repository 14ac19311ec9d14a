#!/usr/bin/env python3
"""Prints the requirements of the named files that this Python's packages don't meet, one a line.

    unmet.py [--no-deps | --no-cuda] FILE…

The requirements of the requirements count too: all but CUDA's with --no-cuda, none with --no-deps.
A package whose installation was interrupted has no RECORD yet: its metadata is removed, so that pip
installs it afresh.
"""
import importlib.metadata
import re
import shutil
import sys

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name


OF_CUDA = re.compile(r"nvidia-|cuda-|triton$")


def installed_packages():
    found = {}
    for package in importlib.metadata.distributions():
        folder = str(package._path)
        if package.read_text("RECORD") is None and folder.startswith(sys.prefix + "/"):
            shutil.rmtree(folder, ignore_errors=True)
        elif package.metadata["Name"]:
            found[canonicalize_name(package.metadata["Name"])] = package
    return found


def unmet(requirement, installed, option, seen):
    key = (canonicalize_name(requirement.name), tuple(sorted(requirement.extras)))
    package = installed.get(key[0])
    if package is None or not requirement.specifier.contains(package.version, prereleases=True):
        yield str(requirement)
        return
    if option == "--no-deps" or key in seen:
        return
    seen.add(key)
    for line in package.requires or []:
        need = Requirement(line)
        if option == "--no-cuda" and OF_CUDA.match(canonicalize_name(need.name)):
            continue
        extras = requirement.extras or {""}
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras):
            yield from unmet(need, installed, option, seen)


def main():
    arguments = sys.argv[1:]
    option = arguments.pop(0) if arguments and arguments[0].startswith("--") else ""
    installed = installed_packages()
    seen = set()
    for file in arguments:
        for line in open(file):
            line = line.split("#")[0].strip()
            if not line:
                continue
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate():
                for text in unmet(requirement, installed, option, seen):
                    print(text)


if __name__ == "__main__":
    main()
