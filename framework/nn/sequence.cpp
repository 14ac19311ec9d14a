#include "framework/nn/sequence.h"

#include <utility>

namespace brim::nn {

at::Tensor Sequence::forward(const at::Tensor& inputs) {
  begin(inputs);
  return run(0, parts_.size(), inputs);
}

at::Tensor Sequence::run(size_t first, size_t end, at::Tensor x) const {
  for (size_t i = first; i < end; ++i) x = parts_[i].forward(x);
  return x;
}

void Sequence::add_part(std::string name, std::vector<std::string> reads,
                        std::function<at::Tensor(const at::Tensor&)> forward) {
  parts_.push_back({std::move(name), std::move(reads), std::move(forward)});
}

void Sequence::add_part(const std::string& name, std::shared_ptr<Block> block) {
  add_part(name, {name}, [block = std::move(block)](const at::Tensor& x) { return block->run(x); });
}

}  // namespace brim::nn
