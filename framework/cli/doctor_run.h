// trainer doctor RUN: what slows a run down, and which line of its recipe to change.
#pragma once

#include "framework/cli/options.h"

namespace brim::cli {

/// With --run and the other options as trainer doctor has them. Returns the exit status.
int doctor_run(const cxxopts::ParseResult& parsed);

}  // namespace brim::cli
