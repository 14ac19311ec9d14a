#include "framework/data/sampler.h"

#include "framework/base/random.h"
#include "framework/data/samplers/class_balanced.h"
#include "framework/data/samplers/length_bucketed.h"
#include "framework/data/samplers/repeated.h"
#include "framework/data/samplers/sequential.h"
#include "framework/data/samplers/shuffled.h"
#include "framework/data/samplers/weighted.h"

namespace brim::data {

uint64_t choice_seed(uint64_t seed, Choice choice, int64_t number) {
  const auto values = philox(seed, static_cast<uint64_t>(number), static_cast<uint64_t>(choice));
  return uint64_t{values[0]} << 32 | values[1];
}

void register_samplers() {
  auto& samplers = recipe::registry<SamplerConfig>();
  samplers.add<ClassBalancedConfig>("class_balanced", "each class as often as any other");
  samplers.add<LengthBucketedConfig>("length_bucketed",
                                     "shuffled, in batches of samples of similar length");
  samplers.add<RepeatedConfig>("repeated",
                               "shuffled, each sample several times close by with augmentations of "
                               "its own");
  samplers.add<SequentialConfig>("sequential", "in the dataset's own order, every epoch the same");
  samplers.add<ShuffledConfig>("shuffled", "each sample once an epoch, in random order");
  samplers.add<WeightedConfig>("weighted", "drawn with replacement, each by its weight in a file");
}

}  // namespace brim::data
