// Changes of images for the tests of transform_images.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>

#include "framework/data/augment/mix.h"

namespace brim::cuda {

/// Changes of every kind, some images left as they are.
inline at::Tensor changes_for(const at::Tensor& pixels) {
  auto changes =
      data::draw_changes({.mixup = 0.6, .cutmix = 1, .erase = 0.5}, 11, 0, 0, pixels.size(0),
                         {pixels.size(1), pixels.size(2), pixels.size(3)});
  for (size_t i = 0; i < changes.size(); ++i) {
    changes[i].flip = i % 3 == 0 ? 1 : 0;
    if (i % 8 > 5) changes[i] = {};
  }
  at::Tensor rows = at::empty({pixels.size(0), data::kChangeInts}, at::kInt);
  if (!changes.empty()) {
    std::memcpy(rows.data_ptr(), changes.data(), changes.size() * sizeof(data::ImageChange));
  }
  return rows;
}

}  // namespace brim::cuda
