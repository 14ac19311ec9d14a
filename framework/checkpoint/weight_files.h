// Weights in one safetensors file, or in several that an index beside them lists (as the
// transformers package splits large models):
//
//   {"metadata": {…}, "weight_map": {"tensor": "model-00001-of-00002.safetensors", …}}
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/checkpoint/safetensors.h"

namespace brim::checkpoint {

/// The file of each tensor. Throws Error(kCheckpoint), naming `where`, for anything but an index,
/// and for names of files that could lie elsewhere than beside it.
std::map<std::string, std::string> parse_weight_index(std::string_view text,
                                                      const std::string& where);

/// Maps the file, or all files of an index (a path that ends with ".json"), and checks that they
/// hold each tensor of the index once, where it says, and no other. Throws Error(kCheckpoint).
class WeightFiles {
 public:
  explicit WeightFiles(const std::filesystem::path& path);

  /// Of all files; the bytes live as long as this object.
  const std::vector<TensorBytes>& tensors() const { return tensors_; }

  /// Lets the memory go that some of their bytes take, which are read again where they are needed.
  /// Of other memory nothing is done.
  void let_go(std::span<const std::byte> bytes) const;
  /// The same of all their bytes.
  void let_go() const;

 private:
  void add(const std::filesystem::path& path);
  void add_index(const std::filesystem::path& path);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<TensorBytes> tensors_;
};

}  // namespace brim::checkpoint
