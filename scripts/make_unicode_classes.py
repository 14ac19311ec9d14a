#!/usr/bin/env python3
"""Writes framework/text/unicode_ranges.h: the letters, numbers and white space of Unicode.

    scripts/make_unicode_classes.py > framework/text/unicode_ranges.h

GPT-2's tokenizer splits text by them. The version is the one whose tables the packages tiktoken
and tokenizers have inside, so that ids agree; it comes with Python 3.14, or with the package
unicodedata2 of that version.
"""
import sys
import unicodedata

VERSION = "16.0.0"
# White_Space of PropList.txt, which unicodedata doesn't tell; it has not changed since Unicode 6.3.
SPACE = [*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
         0x205F, 0x3000]
HEAD = """\
// Made by scripts/make_unicode_classes.py from the tables of Unicode {version}; not to be edited.
// Ranges of code points, first and last, in ascending order.
#pragma once

#include <array>
#include <utility>

namespace brim::text {{

using CodePointRange = std::pair<char32_t, char32_t>;

// clang-format off"""
TAIL = """\
// clang-format on

}  // namespace brim::text"""


def tables():
    if unicodedata.unidata_version == VERSION:
        return unicodedata
    import unicodedata2
    if unicodedata2.unidata_version != VERSION:
        sys.exit(f"expected Unicode {VERSION}, found {unicodedata2.unidata_version}: "
                 f"pip install unicodedata2=={VERSION}")
    return unicodedata2


def ranges(points):
    found = []
    for point in points:
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    return found


def array(name, comment, points):
    items = [f"{{0x{first:X}, 0x{last:X}}}," for first, last in ranges(points)]
    lines = [f"/// {comment}",
             f"inline constexpr std::array<CodePointRange, {len(items)}> {name} = {{{{"]
    line = "   "
    for item in items:
        if len(line) + 1 + len(item) > 100:
            lines.append(line)
            line = "   "
        line += " " + item
    return [*lines, line, "}};"]


def main():
    category = tables().category
    letters = [point for point in range(0x110000) if category(chr(point))[0] == "L"]
    numbers = [point for point in range(0x110000) if category(chr(point))[0] == "N"]
    print("\n".join([HEAD.format(version=VERSION),
                     *array("kLetters", "General category L.", letters),
                     *array("kNumbers", "General category N.", numbers),
                     *array("kSpaces", "White_Space.", SPACE), TAIL]))


if __name__ == "__main__":
    main()
