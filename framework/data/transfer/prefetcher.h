// The training loop's view of its data: batches on the device. On CUDA the copy of the next batch,
// and its transform (to_device.h), run on a stream of their own while the device computes;
// on the CPU there is nothing to copy, and a batch is made when it is asked for.
#pragma once

#include <optional>
#include <variant>

#include "framework/base/timeline.h"
#include "framework/data/augment/mix.h"
#include "framework/data/loading/loader.h"
#include "framework/data/transfer/copy_stream.h"
#include "framework/data/transfer/to_device.h"

namespace brim::data {

/// How batches are made of a loader's images.
struct ImageInputs {
  ImageShape shape;
  Normalizer normalizer;  // on the device that batches go to
  bool channels_last = false;
  at::ScalarType dtype = at::kFloat;
  MixConfig mix = {};
};

/// The same of its rows of tokens.
struct TokenInputs {
  TokenShape shape;
  at::Device device;
};

/// Decoding on that device, for LoaderOptions::draw_jpegs. Throws Error(kRecipe) where it isn't a
/// CUDA device, Error(kResource) where it has no decoder. Where the device has no memory left,
/// calls leave images alone.
device::DrawJpegs jpeg_decoder(at::Device device);

using InputOptions = std::variant<ImageInputs, TokenInputs>;

/// Belongs to the thread that drives the step.
class DevicePrefetcher {
 public:
  struct Input : BatchPlan {  // with the weights that the dataset gives its samples
    DeviceBatch tensors;
  };

  /// Starts a loader; the dataset outlives it. Time goes to `timeline`'s phases data_wait, copy and
  /// transform.
  DevicePrefetcher(const Dataset& dataset, const LoaderOptions& loading, const InputOptions& input,
                   Timeline& timeline, int64_t start_epoch = 0, int64_t start_step = 0);

  /// The next batch, for use on the current stream; null at the end. It stays valid until the
  /// following call. Errors are Loader::next()'s.
  const Input* next();

  /// To be called when the device has been given work: begins with the batch that next() will give.
  /// Does nothing on the CPU, and leaves it to next() where a stop is asked for or the device has
  /// no memory for it.
  void prefetch();

  const Loader& loader() const { return loader_; }
  /// Since the last call.
  OverlappedWork take_overlapped();

 private:
  std::optional<Input> load();
  DeviceBatch tensors(const Batch& batch) const;
  /// Sets the plan's weights.
  void weigh(BatchPlan& plan);

  const Dataset& dataset_;
  InputOptions input_;
  LoaderOptions loading_;
  Timeline& timeline_;
  Loader loader_;
  std::optional<CopyStream> copies_;  // none on the CPU
  const Batch* loaded_ = nullptr;     // that tensors are to be made of
  std::optional<Input> ahead_;        // what next() will give
  int64_t step_weight_ = 0;           // of the step that is being loaded; 0: not known yet
  bool is_ahead_ = false;             // ahead_ is the next batch, or the end
  std::optional<Input> current_;
};

}  // namespace brim::data
