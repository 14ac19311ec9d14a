// Where a sequence of parts is cut into the stages of a pipeline: so that the slowest stage is as
// fast as can be, and none needs more memory than a rank has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace brim::distributed {

struct PartCost {
  std::string name;
  double work = 0;               // of a micro-batch, forward and backward, in any unit
  int64_t activation_bytes = 0;  // kept of a micro-batch from its forward to its backward pass
  std::map<std::string, int64_t> state_bytes = {};  // by parameter: with gradient and optimizer's
};

struct CutOptions {
  int64_t stages = 1;
  std::vector<int64_t> live = {};  // micro-batches whose activations a stage holds, by stage
  int64_t cap_bytes = 0;           // of a rank; 0: no limit
};

/// The first part of each stage, 0 first, by dynamic programming over the parts; of two equal cuts
/// the one whose later stages begin earlier. Stages whose state fits the cap, but not beside all
/// activations, are taken where nothing else is left: micro-batches may still become smaller.
/// Throws Error(kResource) where some state fits nowhere. There are at least as many parts as
/// stages.
std::vector<size_t> cut_into_stages(const std::vector<PartCost>& parts, const CutOptions& options);

/// "stage 0: stem, layer1.0 … layer2.1 (51 %)", a stage each.
std::vector<std::string> describe_cut(const std::vector<PartCost>& parts,
                                      const std::vector<size_t>& cut);

}  // namespace brim::distributed
