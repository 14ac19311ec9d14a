#include "framework/checkpoint/weight_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "framework/base/json.h"

namespace brim::checkpoint {
namespace {

constexpr int64_t kLongestIndex = int64_t{64} << 20;
constexpr std::string_view kMapKey = "weight_map";

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

/// A name that stays in its folder.
bool is_plain_name(const std::string& name) {
  return name.ends_with(".safetensors") && !name.starts_with('.') &&
         name.find_first_of("/\\") == std::string::npos && std::ranges::none_of(name, is_control);
}

/// Advice: where it isn't taken, the kernel drops clean pages when it needs them.
void drop_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = (start + page - 1) / page * page;
  const uintptr_t last = (start + bytes.size()) / page * page;
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace

std::map<std::string, std::string> parse_weight_index(std::string_view text,
                                                      const std::string& where) {
  const nlohmann::json document = parse_json(text, where, {.bytes = kLongestIndex, .depth = 8});
  if (!document.is_object() || !document.contains(kMapKey) || !document[kMapKey].is_object() ||
      document[kMapKey].empty()) {
    throw Error(Exit::kCheckpoint,
                "{}: expected the index of safetensors files, an object with \"weight_map\": "
                "{{\"tensor\": \"file\", …}}",
                where);
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : document[kMapKey].items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      throw Error(
          Exit::kCheckpoint,
          "{}: weight_map: {}: expected the name of a .safetensors file in the same folder, "
          "found {}",
          where, in_quotes(tensor),
          file.is_string() ? in_quotes(file.get_ref<const std::string&>())
                           : std::string(file.type_name()));
    }
    files[tensor] = file.get<std::string>();
  }
  return files;
}

WeightFiles::WeightFiles(const std::filesystem::path& path) {
  path.extension() == ".json" ? add_index(path) : add(path);
}

void WeightFiles::add(const std::filesystem::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  const auto& tensors = files_.back()->tensors();
  tensors_.insert(tensors_.end(), tensors.begin(), tensors.end());
}

void WeightFiles::add_index(const std::filesystem::path& path) {
  const std::string where = path.string();
  const auto file_of = parse_weight_index(read_file(path, Exit::kCheckpoint, kLongestIndex), where);
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  for (const std::string& name : names) {
    if (std::filesystem::exists(path.parent_path() / name)) continue;
    throw Error(Exit::kCheckpoint, "{}: the file {} is missing beside it", where, in_quotes(name));
  }
  std::set<std::string> found;
  for (const std::string& name : names) {
    const size_t before = tensors_.size();
    add(path.parent_path() / name);
    for (size_t i = before; i < tensors_.size(); ++i) {
      const std::string& tensor = tensors_[i].name;
      const auto expected = file_of.find(tensor);
      if (expected == file_of.end() || expected->second != name) {
        throw Error(
            Exit::kCheckpoint, "{}: {} holds {}, which the index {}", where, in_quotes(name),
            in_quotes(tensor),
            expected == file_of.end() ? "doesn't know" : "has in " + in_quotes(expected->second));
      }
      found.insert(tensor);
    }
  }
  for (const auto& [tensor, file] : file_of) {
    if (found.contains(tensor)) continue;
    throw Error(Exit::kCheckpoint, "{}: expected {} in {}, which lacks it", where,
                in_quotes(tensor), in_quotes(file));
  }
}

void WeightFiles::let_go(std::span<const std::byte> bytes) const {
  const auto holds = [&](const std::unique_ptr<SafetensorsFile>& file) {
    return std::ranges::any_of(file->tensors(), [&](const TensorBytes& tensor) {
      return std::less_equal<>{}(tensor.bytes.data(), bytes.data()) &&
             std::less_equal<>{}(bytes.data() + bytes.size(),
                                 tensor.bytes.data() + tensor.bytes.size());
    });
  };
  if (bytes.empty() || std::ranges::none_of(files_, holds)) return;
  drop_pages(bytes);
}

void WeightFiles::let_go() const {
  for (const auto& file : files_) {
    const std::byte *first = nullptr, *end = nullptr;
    for (const TensorBytes& tensor : file->tensors()) {
      if (tensor.bytes.empty()) continue;
      const std::byte *start = tensor.bytes.data(), *stop = start + tensor.bytes.size();
      first = first == nullptr ? start : std::min(first, start, std::less<>{});
      end = end == nullptr ? stop : std::max(end, stop, std::less<>{});
    }
    if (first != nullptr) drop_pages({first, end});
  }
}

}  // namespace brim::checkpoint
