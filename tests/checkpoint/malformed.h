// Files that are not safetensors, each wrong in one way: what we say of it, and whether the Python
// package refuses it too (test_safetensors.py asks it).
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace brim::checkpoint {

struct MalformedFile {
  std::string name;
  std::string image;
  std::string complaint;  // part of our message
  bool python_refuses = true;
};

/// A file with this header, however wrong, and `value_bytes` bytes of values.
inline std::string image_of(const std::string& header, size_t value_bytes = 0) {
  const uint64_t length = header.size();
  std::string image(8, '\0');
  std::memcpy(image.data(), &length, sizeof length);
  return image + header + std::string(value_bytes, 'v');
}

inline std::string with_length(uint64_t length, const std::string& rest) {
  std::string image(8, '\0');
  std::memcpy(image.data(), &length, sizeof length);
  return image + rest;
}

/// {"a": …} with these entries.
inline std::string entry(const std::string& dtype, const std::string& shape,
                         const std::string& offsets, const std::string& name = "a") {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}
inline std::string one(const std::string& dtype, const std::string& shape,
                       const std::string& offsets) {
  return "{" + entry(dtype, shape, offsets) + "}";
}

inline std::vector<MalformedFile> malformed_files() {
  const std::string good = one("F32", "[2]", "[0,8]");
  const std::string a = entry("F32", "[2]", "[0,8]");
  std::string deep = "{\"a\":";
  for (int level = 0; level < 100'000; ++level) deep += "[";
  const std::string sixty_five_ones = [] {
    std::string shape = "[1";
    for (int i = 1; i < 65; ++i) shape += ",1";
    return shape + "]";
  }();
  return {
      // The frame.
      {"empty", "", "expected at least 8 bytes, found 0"},
      {"seven_bytes", std::string(7, '\0'), "expected at least 8 bytes, found 7"},
      {"length_over_limit", with_length(100'000'001, good), "at most 100000000 are allowed"},
      {"length_maximal", with_length(UINT64_MAX, good), "at most 100000000 are allowed"},
      {"length_past_the_end", with_length(1000, good), "but only 54 follow"},
      {"length_zero", with_length(0, ""), "does not start with '{'"},
      {"header_empty_object_cut", image_of("{"), "not valid JSON"},
      {"header_a_list", image_of("[]"), "does not start with '{'"},
      {"header_after_a_space", image_of(" " + good, 8), "does not start with '{'", false},
      {"header_after_a_byte_order_mark", image_of("\xEF\xBB\xBF" + good, 8),
       "does not start with '{'"},
      {"header_and_more", image_of(good + "{}", 8), "not valid JSON"},
      {"header_and_nul", image_of(good + std::string(1, '\0'), 8), "holds a NUL byte"},
      {"header_cut", image_of(good.substr(0, 20)), "not valid JSON"},
      {"header_not_utf8", image_of("{" + entry("F32", "[2]", "[0,8]", "\xFF") + "}", 8),
       "not valid JSON"},
      {"header_overlong_utf8", image_of("{" + entry("F32", "[2]", "[0,8]", "\xC0\x80") + "}", 8),
       "not valid JSON"},
      {"header_lone_surrogate", image_of("{" + entry("F32", "[2]", "[0,8]", "\\ud800") + "}", 8),
       "not valid JSON"},
      {"header_control_character", image_of("{" + entry("F32", "[2]", "[0,8]", "\n") + "}", 8),
       "not valid JSON"},
      {"header_comment", image_of("{/**/" + a + "}", 8), "not valid JSON"},
      {"header_trailing_comma", image_of("{" + a + ",}", 8), "not valid JSON"},
      {"nested_without_end", image_of(deep), "\"a\" must be an object, found a list"},
      // Entries.
      {"entry_a_number", image_of("{\"a\":1}"), "\"a\" must be an object, found a number"},
      {"entry_null", image_of("{\"a\":null}"), "\"a\" must be an object, found null"},
      {"entry_twice", image_of("{" + a + "," + a + "}", 8), "the key \"a\" is given twice", false},
      {"entry_twice_by_escape",
       image_of("{" + a + "," + entry("F32", "[2]", "[0,8]", "\\u0061") + "}", 8),
       "the key \"a\" is given twice", false},
      {"entry_without_dtype", image_of("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8),
       "tensor \"a\": dtype is missing"},
      {"entry_without_shape", image_of("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8),
       "tensor \"a\": shape is missing"},
      {"entry_without_offsets", image_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8),
       "tensor \"a\": data_offsets is missing"},
      {"entry_with_another_key",
       image_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8),
       "expected dtype, shape and data_offsets, found the key \"x\"", false},
      {"key_in_entry_twice",
       image_of(
           "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8),
       "tensor \"a\": the key \"dtype\" is given twice"},
      {"dtype_unknown", image_of(one("F31", "[2]", "[0,8]"), 8), "the dtype \"F31\" is not known"},
      {"dtype_small_letters", image_of(one("f32", "[2]", "[0,8]"), 8),
       "the dtype \"f32\" is not known"},
      {"dtype_a_number", image_of("{\"a\":{\"dtype\":32,\"shape\":[2],\"data_offsets\":[0,8]}}", 8),
       "dtype must be a string, found a number"},
      {"dtype_of_four_bits", image_of(one("F4", "[2]", "[0,1]"), 1),
       "the dtype \"F4\" is not known", false},
      // Shapes.
      {"shape_a_number", image_of(one("F32", "2", "[0,8]"), 8), "found a number"},
      {"shape_negative", image_of(one("F32", "[-2]", "[0,8]"), 8),
       "shape must hold whole numbers from 0, found a negative number"},
      {"shape_minus_zero", image_of(one("F32", "[-0]", "[0,0]")), "found a negative number"},
      {"shape_fraction", image_of(one("F32", "[2.0]", "[0,8]"), 8),
       "found a number that is not whole"},
      {"shape_exponent", image_of(one("F32", "[2e0]", "[0,8]"), 8),
       "found a number that is not whole"},
      {"shape_text", image_of(one("F32", "[\"2\"]", "[0,8]"), 8), "found a string"},
      {"shape_nested", image_of(one("F32", "[[2]]", "[0,8]"), 8), "found a list"},
      {"shape_over_64_bits", image_of(one("F32", "[18446744073709551616]", "[0,8]"), 8),
       "found a number that is not whole"},
      {"shape_over_63_bits", image_of(one("F32", "[9223372036854775808,0]", "[0,0]")),
       "is too large for a shape", false},
      {"shape_product_overflows", image_of(one("F32", "[4294967296,4294967296,4]", "[0,8]"), 8),
       "too large to address"},
      {"shape_bytes_overflow", image_of(one("F64", "[2305843009213693952]", "[0,0]")),
       "too large to address"},
      {"shape_of_65_dimensions", image_of(one("U8", sixty_five_ones, "[0,1]"), 1),
       "more than 64 dimensions", false},
      // Offsets.
      {"offsets_one", image_of(one("F32", "[2]", "[8]"), 8), "found fewer numbers"},
      {"offsets_three", image_of(one("F32", "[2]", "[0,8,8]"), 8), "found more numbers"},
      {"offsets_negative", image_of(one("F32", "[2]", "[-8,0]"), 8), "found a negative number"},
      {"offsets_backwards", image_of(one("F32", "[2]", "[8,0]"), 8), "run backwards"},
      {"offsets_past_the_end", image_of(one("F32", "[4]", "[0,16]"), 8),
       "its bytes end at 16, but the file holds 8"},
      {"offsets_enormous",
       image_of(one("U8", "[1]", "[9223372036854775806,9223372036854775807]"), 1),
       "its bytes end at 9223372036854775807"},
      {"size_too_small", image_of(one("F32", "[2]", "[0,4]"), 4),
       "takes 8 bytes, but data_offsets hold 4"},
      {"size_too_large", image_of(one("F16", "[2]", "[0,8]"), 8),
       "takes 4 bytes, but data_offsets hold 8"},
      {"scalar_without_bytes", image_of(one("F32", "[]", "[0,0]")),
       "takes 4 bytes, but data_offsets hold 0"},
      {"hole_at_the_start", image_of(one("F32", "[2]", "[4,12]"), 12), "leaves a hole at 0"},
      {"hole_between", image_of("{" + a + "," + entry("F32", "[1]", "[12,16]", "b") + "}", 16),
       "tensor \"b\": its bytes start at 12, which leaves a hole at 8"},
      {"overlap", image_of("{" + a + "," + entry("F32", "[2]", "[4,12]", "b") + "}", 12),
       "tensor \"b\": its bytes start at 4, which overlaps the tensor before it at 8"},
      {"same_bytes_twice", image_of("{" + a + "," + entry("F32", "[2]", "[0,8]", "b") + "}", 8),
       "overlaps the tensor before it"},
      {"bytes_after_the_last", image_of(good, 9), "1 bytes after the last tensor belong to none"},
      {"bytes_without_tensors", image_of("{}", 1), "1 bytes after the last tensor belong to none"},
      {"bytes_missing", image_of(good, 7), "its bytes end at 8, but the file holds 7"},
      // Metadata.
      {"metadata_a_number", image_of("{\"__metadata__\":{\"a\":1}}"),
       "__metadata__: \"a\" must be a string, found a number"},
      {"metadata_nested", image_of("{\"__metadata__\":{\"a\":{}}}"),
       "\"a\" must be a string, found an object"},
      {"metadata_a_list", image_of("{\"__metadata__\":[]}"),
       "\"__metadata__\" must be an object, found a list"},
      {"metadata_null", image_of("{\"__metadata__\":null}"),
       "\"__metadata__\" must be an object, found null", false},
      {"metadata_twice", image_of("{\"__metadata__\":{},\"__metadata__\":{}}"),
       "the key \"__metadata__\" is given twice"},
      {"metadata_key_twice", image_of("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}"),
       "__metadata__: the key \"a\" is given twice", false},
  };
}

}  // namespace brim::checkpoint
