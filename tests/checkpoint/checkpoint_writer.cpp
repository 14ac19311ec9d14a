// Saves checkpoints without end into a folder, for kill_test.cpp to kill. Each step is saved twice,
// so that a checkpoint's replacement is interrupted too. Prints a line when the saving begins.
#include <ATen/ops/full.h>

#include <cstdio>

#include "framework/checkpoint/store.h"

namespace {

using namespace brim::checkpoint;

int save_for_ever(int argc, char** argv) {
  if (argc != 2) throw brim::Error(brim::Exit::kRecipe, "usage: checkpoint_writer FOLDER");
  Store store(argv[1], 2);
  const auto found = store.latest();
  int64_t step = found ? store.load(*found).step : 0;
  std::puts("saving");
  std::fflush(stdout);
  while (true) {
    ++step;
    for (const int attempt : {1, 2}) {
      Snapshot snapshot;
      snapshot.step = step;
      snapshot.tensors["model"]["weight"] = at::full({50'000}, static_cast<double>(step));
      snapshot.tensors["optimizer"]["momentum"] = at::full({50'000}, static_cast<double>(-step));
      snapshot.state = {{"step", step}, {"attempt", attempt}};
      store.save(snapshot, step % 5 == 0);
    }
  }
}

}  // namespace

int main(int argc, char** argv) { return brim::run_program(save_for_ever, argc, argv); }
