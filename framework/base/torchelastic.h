// The error file by which a worker tells torchrun, or trainrun, why it failed.
#pragma once

#include <string>

namespace brim {

/// Writes `message` to the file that TORCHELASTIC_ERROR_FILE names, in the format of PyTorch's
/// torch/distributed/elastic/multiprocessing/errors; without that variable, nothing. Bytes that
/// are not UTF-8 are replaced. A file that cannot be written is left out: the error itself is what
/// the program leaves with.
void write_torchelastic_error(const std::string& message, int status) noexcept;

/// The message in such a file, cut to a readable length; "" where there is none or it's damaged.
std::string read_torchelastic_error(const std::string& path) noexcept;

}  // namespace brim
