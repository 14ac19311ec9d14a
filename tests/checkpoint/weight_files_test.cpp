// Weights in several files with an index: what is read, and what is refused and in which words.
#include "framework/checkpoint/weight_files.h"

#include <array>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/support.h"

namespace brim::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

void write(const std::filesystem::path& path, const std::vector<std::string>& names) {
  static const std::array<std::byte, 8> values{};
  std::vector<TensorBytes> tensors;
  for (const std::string& name : names) tensors.push_back({name, DType::kF32, {2}, values});
  write_safetensors(path, tensors);
}

/// Two files and their index, which a test then spoils.
class Sharded {
 public:
  Sharded() {
    write(folder_ / "one.safetensors", {"a", "b"});
    write(folder_ / "two.safetensors", {"c"});
  }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

  WeightFiles open(const std::map<std::string, std::string>& map) const {
    const nlohmann::json index = {{"metadata", {{"total_size", 24}}}, {"weight_map", map}};
    write_text(folder_ / "m.safetensors.index.json", index.dump());
    return WeightFiles(folder_ / "m.safetensors.index.json");
  }
  std::string refusal(const std::map<std::string, std::string>& map) const {
    const auto [status, message] = error_of([&] { open(map); });
    EXPECT_EQ(status, Exit::kCheckpoint);
    return message;
  }

 private:
  TestFolder folder_;
};

const std::map<std::string, std::string> kRight = {
    {"a", "one.safetensors"}, {"b", "one.safetensors"}, {"c", "two.safetensors"}};

std::map<std::string, std::string> with(const std::string& tensor, const std::string& file) {
  auto map = kRight;
  map[tensor] = file;
  return map;
}

std::string refusal_of(const std::string& text) {
  const auto [status, message] = error_of([&] { parse_weight_index(text, "here"); });
  EXPECT_EQ(status, Exit::kCheckpoint);
  return message;
}

TEST(WeightFiles, AreReadByTheirIndexOrAlone) {
  const Sharded files;
  std::vector<std::string> names;
  const WeightFiles all = files.open(kRight);
  for (const TensorBytes& tensor : all.tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("a", "b", "c"));
  EXPECT_EQ(WeightFiles(files / "two.safetensors").tensors().size(), 1U);
}

TEST(WeightFiles, MustHoldWhatTheIndexSaysAndNoMore) {
  const Sharded files;
  EXPECT_THAT(files.refusal(with("a", "three.safetensors")),
              HasSubstr("the file \"three.safetensors\" is missing beside it"));
  EXPECT_THAT(files.refusal(with("d", "one.safetensors")),
              HasSubstr("expected \"d\" in \"one.safetensors\", which lacks it"));
  EXPECT_THAT(files.refusal({{"a", "one.safetensors"}}),
              HasSubstr("\"one.safetensors\" holds \"b\", which the index doesn't know"));
  write(files / "two.safetensors", {"c", "a"});
  EXPECT_THAT(files.refusal(kRight),
              HasSubstr("\"two.safetensors\" holds \"a\", which the index has in "
                        "\"one.safetensors\""));
}

TEST(WeightFiles, ThatAreCutShortAreRefused) {
  const Sharded files;
  const std::string whole = read_text(files / "two.safetensors");
  write_text(files / "two.safetensors", whole.substr(0, whole.size() - 1));
  EXPECT_THAT(files.refusal(kRight), HasSubstr("two.safetensors"));
}

TEST(WeightFiles, NeverLeaveTheIndexsFolder) {
  const Sharded files;
  for (const std::string name :
       {"../one.safetensors", "/etc/one.safetensors", "sub/one.safetensors", "..\\one.safetensors",
        "..", ".safetensors", "", "one.bin", "one\n.safetensors"}) {
    EXPECT_THAT(files.refusal(with("a", name)),
                HasSubstr("weight_map: \"a\": expected the name of a .safetensors file in the same "
                          "folder, found "))
        << name;
  }
}

TEST(WeightFiles, IndexesAreCheckedAsText) {
  EXPECT_THAT(parse_weight_index(R"({"weight_map": {"a": "b.safetensors"}})", "here"),
              ElementsAre(Pair("a", "b.safetensors")));
  for (const std::string text :
       {"[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})", "1"}) {
    EXPECT_THAT(refusal_of(text), HasSubstr("expected the index of safetensors files")) << text;
  }
  EXPECT_THAT(refusal_of(R"({"weight_map": {"a": 1}})"), HasSubstr("found number"));
  EXPECT_THAT(refusal_of(R"({"weight_map": {"a": "b.safetensors", "a": "c.safetensors"}})"),
              HasSubstr("given twice"));
  EXPECT_THAT(refusal_of(R"({"weight_map": {"a")"), HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace brim::checkpoint
