// What the device gives at most, measured: the limits that a profile's operators are held against.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <limits>
#include <string>

namespace brim::train {

/// How much a measurement takes: 0.3 s and large tensors, or 0.1 s and, on the CPU, 64 MiB at most.
enum class Effort { kFull, kQuick };

/// Whether this device multiplies fp32 faster than `format`, which can be widened to it: a CPU that
/// emulates bf16 or fp16 takes a minute for one of the products below.
bool is_limited_by_fp32(c10::Device device, const std::string& format);

/// Operations a second of a product of large square matrices in "bf16", "fp16", "tf32", "fp32" or
/// "fp64", or in fp32 where that is the limit, two for each multiply-add: the fastest of those that
/// fit into the time.
double measured_product_flops(c10::Device device, const std::string& format,
                              Effort effort = Effort::kFull);
/// How long the sides of those matrices are.
int64_t measured_side(c10::Device device, Effort effort = Effort::kFull);

/// Bytes a second that a large copy reads and writes, of two tensors of `most_bytes` each at most.
double measured_copy_bytes(c10::Device device, Effort effort = Effort::kFull,
                           int64_t most_bytes = std::numeric_limits<int64_t>::max());

/// Seconds that an operator takes of a host where there is nothing to compute.
double measured_call_s(c10::Device device);

}  // namespace brim::train
