// The reading half of safetensors.h: a state machine over the header's JSON tokens, then the rules
// on offsets. Nothing nested deeper than the format needs is ever entered, so no input can exhaust
// the stack.
#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "framework/base/json.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/checkpoint/safetensors_rules.h"

namespace brim::checkpoint {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_safetensors(const std::string& where, const std::string& reason) {
  throw Error(Exit::kCheckpoint,
              "{}: not a whole safetensors file: {}; use another copy or another checkpoint", where,
              reason);
}

struct HeaderEntry {
  std::string name;
  std::optional<DType> dtype;
  bool has_shape = false;
  bool has_offsets = false;
  std::vector<int64_t> shape;
  std::vector<int64_t> offsets;  // begin, end

  int64_t begin() const { return offsets[0]; }
  int64_t end() const { return offsets[1]; }
};

/// Receives the header's tokens in order; the function names are nlohmann::json's.
class HeaderReader : public json::json_sax_t {
 public:
  explicit HeaderReader(const std::string& where) : where_(where) {}

  std::vector<HeaderEntry> entries;
  Metadata metadata;

  bool start_object(size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop && key_ == kMetadataKey) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTop) {
      entries.emplace_back().name = key_;
      place_ = Place::kTensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(std::string& name) override {
    bool is_new = true;
    if (place_ == Place::kTop) {
      is_new = names_.insert(name).second;
    } else if (place_ == Place::kMetadata) {
      is_new = metadata.emplace(name, "").second;
    } else {
      is_new = is_new_tensor_key(name);
    }
    if (!is_new) fail(fmt::format("the key {} is given twice", in_quotes(name)));
    key_ = name;
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      metadata[key_] = value;
    } else if (place_ == Place::kTensor && key_ == "dtype") {
      entries.back().dtype = find_dtype(value);
      if (!entries.back().dtype) fail(fmt::format("the dtype {} is not known", in_quotes(value)));
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::kTensor && key_ == "shape") {
      entries.back().has_shape = true;
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && key_ == "data_offsets") {
      entries.back().has_offsets = true;
      place_ = Place::kOffsets;
    } else {
      unexpected("a list");
    }
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) unexpected("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      fail(fmt::format("{} is too large for a {}", value, key_));
    }
    const bool is_shape = place_ == Place::kShape;
    auto& list = is_shape ? entries.back().shape : entries.back().offsets;
    if (list.size() == (is_shape ? kMaxDimensions : 2)) {
      fail(is_shape ? fmt::format("more than {} dimensions", kMaxDimensions)
                    : "data_offsets must be [begin, end], found more numbers");
    }
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && entries.back().offsets.size() != 2) {
      fail("data_offsets must be [begin, end], found fewer numbers");
    }
    place_ = Place::kTensor;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      const HeaderEntry& entry = entries.back();
      if (!entry.dtype) fail("dtype is missing");
      if (!entry.has_shape) fail("shape is missing");
      if (!entry.has_offsets) fail("data_offsets is missing");
    }
    place_ = Place::kTop;
    return true;
  }

  bool number_integer(int64_t) override { unexpected("a negative number"); }
  bool number_float(double, const std::string&) override {
    unexpected("a number that is not whole");
  }
  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("true or false"); }
  bool binary(json::binary_t&) override { unexpected("binary data"); }

  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    refuse_safetensors(where_, "its header is not valid JSON: " + json_complaint(error));
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets };

  bool is_new_tensor_key(const std::string& name) {
    const HeaderEntry& entry = entries.back();
    if (name == "dtype") return !entry.dtype;
    if (name == "shape") return !entry.has_shape;
    if (name == "data_offsets") return !entry.has_offsets;
    fail(fmt::format("expected dtype, shape and data_offsets, found the key {}", in_quotes(name)));
  }

  [[noreturn]] void fail(const std::string& reason) const {
    switch (place_) {
      case Place::kStart:
      case Place::kTop:
        refuse_safetensors(where_, reason);
      case Place::kMetadata:
        refuse_safetensors(where_, "__metadata__: " + reason);
      default:
        refuse_safetensors(where_,
                           fmt::format("tensor {}: {}", in_quotes(entries.back().name), reason));
    }
  }

  [[noreturn]] void unexpected(std::string_view found) const {
    switch (place_) {
      case Place::kStart:
        fail(fmt::format("expected an object as its header, found {}", found));
      case Place::kTop:
        fail(fmt::format("{} must be an object, found {}", in_quotes(key_), found));
      case Place::kMetadata:
        fail(fmt::format("{} must be a string, found {}", in_quotes(key_), found));
      case Place::kTensor:
        fail(fmt::format("{} must be {}, found {}", key_, key_ == "dtype" ? "a string" : "a list",
                         found));
      default:
        fail(fmt::format("{} must hold whole numbers from 0, found {}", key_, found));
    }
  }

  const std::string& where_;
  Place place_ = Place::kStart;
  std::string key_;
  std::set<std::string> names_;
};

std::string_view header_text(std::span<const std::byte> image, const std::string& where) {
  if (image.size() < kLengthBytes) {
    refuse_safetensors(where, fmt::format("expected at least 8 bytes, found {}", image.size()));
  }
  uint64_t length = 0;
  std::memcpy(&length, image.data(), sizeof length);
  if (length > kLongestHeader) {
    refuse_safetensors(
        where, fmt::format("its header would be {} bytes long; at most {} are allowed", length,
                           kLongestHeader));
  }
  if (length > image.size() - kLengthBytes) {
    refuse_safetensors(where, fmt::format("its header would be {} bytes long, but only {} follow",
                                          length, image.size() - kLengthBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(image.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) refuse_safetensors(where, "its header does not start with '{'");
  // nlohmann's lexer takes a NUL byte for the end of the text.
  if (text.find('\0') != std::string_view::npos)
    refuse_safetensors(where, "its header holds a NUL byte");
  return text;
}

/// Tensors must follow one another from the first byte of the values to the last.
void check_layout(std::vector<HeaderEntry>& entries, int64_t values_size,
                  const std::string& where) {
  std::ranges::stable_sort(entries, [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::tuple(a.begin(), a.end()) < std::tuple(b.begin(), b.end());
  });
  int64_t expected = 0;
  for (const HeaderEntry& entry : entries) {
    const auto fail = [&](const std::string& reason) {
      refuse_safetensors(where, fmt::format("tensor {}: {}", in_quotes(entry.name), reason));
    };
    if (entry.end() < entry.begin()) {
      fail(fmt::format("data_offsets run backwards, from {} to {}", entry.begin(), entry.end()));
    }
    const auto size = tensor_size(*entry.dtype, entry.shape);
    if (!size) {
      fail(fmt::format("shape [{}] is too large to address", fmt::join(entry.shape, ", ")));
    }
    if (*size != entry.end() - entry.begin()) {
      fail(fmt::format("{} of shape [{}] takes {} bytes, but data_offsets hold {}",
                       dtype_name(*entry.dtype), fmt::join(entry.shape, ", "), *size,
                       entry.end() - entry.begin()));
    }
    if (entry.end() > values_size) {
      fail(fmt::format("its bytes end at {}, but the file holds {} bytes of values", entry.end(),
                       values_size));
    }
    if (entry.begin() != expected) {
      fail(fmt::format("its bytes start at {}, which {} at {}", entry.begin(),
                       entry.begin() > expected ? "leaves a hole" : "overlaps the tensor before it",
                       expected));
    }
    expected = entry.end();
  }
  if (expected != values_size) {
    refuse_safetensors(where, fmt::format("{} bytes after the last tensor belong to none",
                                          values_size - expected));
  }
}

}  // namespace

Safetensors parse_safetensors(std::span<const std::byte> image, const std::string& where) {
  const std::string_view text = header_text(image, where);
  HeaderReader reader(where);
  json::sax_parse(text, &reader);

  const auto values = image.subspan(kLengthBytes + text.size());
  check_layout(reader.entries, static_cast<int64_t>(values.size()), where);
  Safetensors result;
  result.metadata = std::move(reader.metadata);
  result.tensors.reserve(reader.entries.size());
  for (HeaderEntry& entry : reader.entries) {
    result.tensors.push_back({std::move(entry.name), *entry.dtype, std::move(entry.shape),
                              values.subspan(static_cast<size_t>(entry.begin()),
                                             static_cast<size_t>(entry.end() - entry.begin()))});
  }
  return result;
}

}  // namespace brim::checkpoint
