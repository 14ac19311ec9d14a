// All of `trainer` as a function, for programs that bring parts of their own.
#pragma once

namespace brim::cli {

/// Registers Brim's models, datasets, samplers, optimizers and schedules: for programs that train
/// without main(). Call once.
void register_components();

/// What the program `trainer` does: trains a recipe, or runs the subcommand named by the first
/// argument. Calls register_components(), then `register_own`, which adds the program's own parts.
/// Returns the exit status; prints errors and throws none.
int main(int argc, char** argv, void (*register_own)() = nullptr);

}  // namespace brim::cli
