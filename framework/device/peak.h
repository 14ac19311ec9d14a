// How fast GPUs multiply matrices, by their makers' data sheets.
#pragma once

#include <string_view>

namespace brim::device {

/// Operations a second of dense matrix products on a GPU of that name, as NVML and CUDA give it, in
/// "bf16", "fp16", "tf32", "fp32" or "fp64"; 0 where this GPU or that format is not in the table.
double peak_flops(std::string_view gpu, std::string_view format);

}  // namespace brim::device
