// The safetensors format: what is read, what is refused and in which words. Agreement with the
// Python package is in test_safetensors.py.
#include "framework/checkpoint/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/base/json.h"
#include "tests/checkpoint/malformed.h"
#include "tests/checkpoint/support.h"

namespace brim::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

Safetensors parse(const std::string& image) {
  return parse_safetensors(std::as_bytes(std::span(image)), "here");
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string header =
      "{" + entry("F32", "[2]", "[3,11]", "late") + ",\"__metadata__\":" + "{\"k\":\"v\"}," +
      entry("U8", "[3,1]", "[0,3]", "early") + "," + entry("I64", "[0,5]", "[3,3]", "none") + "}  ";
  const std::string image = image_of(header, 11);
  const Safetensors content = parse(image);
  ASSERT_EQ(content.tensors.size(), 3U);
  EXPECT_EQ(content.tensors[0].name, "early");
  EXPECT_EQ(content.tensors[1].name, "none");
  EXPECT_EQ(content.tensors[2].name, "late");
  EXPECT_THAT(content.tensors[0].shape, ElementsAre(3, 1));
  EXPECT_EQ(content.tensors[2].dtype, DType::kF32);
  EXPECT_EQ(content.tensors[2].bytes.size(), 8U);
  EXPECT_EQ(reinterpret_cast<const char*>(content.tensors[2].bytes.data()),
            image.data() + 8 + header.size() + 3);
  EXPECT_EQ(content.metadata, (Metadata{{"k", "v"}}));
}

TEST(Safetensors, ReadsAFileWithoutTensors) {
  EXPECT_THAT(parse(image_of("{}")).tensors, IsEmpty());
}

TEST(Safetensors, RefusesEveryMalformedFileInWords) {
  for (const MalformedFile& file : malformed_files()) {
    SCOPED_TRACE(file.name);
    const auto [status, message] = error_of([&] { parse(file.image); });
    EXPECT_EQ(status, Exit::kCheckpoint);
    EXPECT_THAT(message, StartsWith("here: not a whole safetensors file: "));
    EXPECT_THAT(message, HasSubstr(file.complaint));
    EXPECT_THAT(message, HasSubstr("use another copy or another checkpoint"));
    EXPECT_LT(message.size(), 400U);
    EXPECT_TRUE(std::ranges::all_of(message, [](char c) { return c >= ' ' && c <= '~'; }));
  }
}

TEST(Safetensors, KeepsControlCharactersOfAFileOutOfMessages) {
  const std::string header =
      "{" + entry("F31", "[1]", "[0,4]", "\\u001b[2J" + std::string(500, 'x')) + "}";
  const auto [status, message] = error_of([&] { parse(image_of(header, 4)); });
  EXPECT_THAT(message, HasSubstr("tensor \"\\u001b[2Jxxx"));
  EXPECT_LT(message.size(), 300U);
}

TEST(Safetensors, WritesWidestFirstThenByNameOnAlignedBytes) {
  const TestFolder folder;
  const std::string values = "12345678";
  const auto bytes = std::as_bytes(std::span(values));
  write_safetensors(folder / "f",
                    {{"b", DType::kU8, {3}, bytes.first(3)},
                     {"a\"\n", DType::kU8, {}, bytes.first(1)},
                     {"z", DType::kF64, {1}, bytes}},
                    {{"k", "v"}});
  const std::string image = read_text(folder / "f");
  const std::string header =
      R"({"__metadata__":{"k":"v"},"z":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
      R"("a\"\n":{"dtype":"U8","shape":[],"data_offsets":[8,9]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[9,12]}})";
  EXPECT_EQ(image.substr(8, header.size()), header);
  EXPECT_EQ((image.size() - 12) % 8, 0U);
  EXPECT_TRUE(image.ends_with("123456781123"));
  const SafetensorsFile file(folder / "f");
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.tensors().back().name, "b");
  EXPECT_EQ(file.tensors().back().bytes.size(), 3U);
}

TEST(Safetensors, RefusesToWriteWhatNoFileHolds) {
  const TestFolder folder;
  const std::string values = "12345678";
  const auto bytes = std::as_bytes(std::span(values));
  const auto status_of = [&](const std::vector<TensorBytes>& tensors) {
    return error_of([&] { write_safetensors(folder / "f", tensors); }).first;
  };
  EXPECT_EQ(status_of({{"a", DType::kF32, {3}, bytes}}), Exit::kBug);
  EXPECT_EQ(status_of({{"a", DType::kF32, {-2}, bytes}}), Exit::kBug);
  EXPECT_EQ(status_of({{"a", DType::kF64, {}, bytes}, {"a", DType::kF64, {}, bytes}}), Exit::kBug);
  EXPECT_EQ(status_of({{"__metadata__", DType::kF64, {}, bytes}}), Exit::kBug);
  EXPECT_EQ(status_of({{"\xFF", DType::kF64, {}, bytes}}), Exit::kBug);
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
}

TEST(Json, RefusesWhatIsTooDeepTooLongOrSaidTwice) {
  const JsonLimits limits = {.bytes = 300'000, .depth = 3};
  const auto message_of = [&](const std::string& text) {
    const auto [status, message] = error_of([&] { parse_json(text, "here", limits); });
    EXPECT_EQ(status, Exit::kCheckpoint);
    return message;
  };
  EXPECT_EQ(parse_json("{\"a\":[[1]]}", "here", limits)["a"][0][0], 1);
  EXPECT_THAT(message_of("{\"a\":[[[1]]]}"), HasSubstr("nested at most 3 deep"));
  EXPECT_THAT(message_of(std::string(200'000, '[')), HasSubstr("nested at most 3 deep"));
  EXPECT_THAT(message_of(std::string(300'001, ' ')), HasSubstr("at most 300000 bytes"));
  EXPECT_THAT(message_of("{\"a\":{\"x\":1},\"b\":{\"x\":1},\"a\":1}"),
              HasSubstr("the key \"a\" is given twice"));
  EXPECT_THAT(message_of(std::string("{}\0x", 4)), HasSubstr("NUL"));
  EXPECT_THAT(message_of(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of("{\"a\":nan}"), HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace brim::checkpoint
