#include "framework/checkpoint/manifest.h"

#include <nlohmann/json.hpp>

#include "tests/checkpoint/support.h"

namespace brim::checkpoint {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kDigest = "0123456789abcdef0123456789abcdef";

json good_manifest() {
  const json file = {{"name", "model.safetensors"}, {"size", 10}, {"xxh3_128", kDigest}};
  return {{"format", 1}, {"step", 1000}, {"sequence", 3}, {"files", json::array({file})}};
}

TEST(Manifest, ReadsWhatItPrints) {
  const Manifest manifest = {
      1000, 3, {{"model.safetensors", 10, kDigest}, {"state.json", 0, kDigest}}};
  const Manifest read = parse_manifest(print_manifest(manifest), "here");
  EXPECT_EQ(read.step, 1000);
  EXPECT_EQ(read.sequence, 3);
  ASSERT_EQ(read.files.size(), 2U);
  EXPECT_EQ(read.files[0].name, "model.safetensors");
  EXPECT_EQ(read.files[0].size, 10);
  EXPECT_EQ(read.files[0].digest, kDigest);
}

TEST(Manifest, RefusesEveryMalformedOneInWords) {
  struct Case {
    std::string change;  // an RFC 6902 patch on the good one
    std::string complaint;
  };
  const Case cases[] = {
      {R"({"op":"replace","path":"","value":[]})", "it must be an object"},
      {R"({"op":"remove","path":"/step"})", "it lacks the key 'step'"},
      {R"({"op":"remove","path":"/format"})", "it lacks the key 'format'"},
      {R"({"op":"replace","path":"/format","value":2})",
       "expected a checkpoint of format 1, found format 2"},
      {R"({"op":"replace","path":"/step","value":-1})", "'step' in it must be a whole number"},
      {R"({"op":"replace","path":"/step","value":1.5})", "'step' in it must be a whole number"},
      {R"({"op":"replace","path":"/step","value":9223372036854775808})",
       "'step' in it must be a whole number"},
      {R"({"op":"replace","path":"/sequence","value":"1"})",
       "'sequence' in it must be a whole number"},
      {R"({"op":"replace","path":"/files","value":{}})", "'files' must be a list"},
      {R"({"op":"add","path":"/more","value":1})", "unknown key \"more\""},
      {R"({"op":"replace","path":"/files/0","value":1})", "an entry of 'files' must be an object"},
      {R"({"op":"add","path":"/files/0/more","value":1})", "unknown key \"more\""},
      {R"({"op":"remove","path":"/files/0/size"})", "lacks the key 'size'"},
      {R"({"op":"replace","path":"/files/0/size","value":-1})", "'size' in an entry"},
      {R"({"op":"replace","path":"/files/0/name","value":1})", "must be text"},
      {R"({"op":"replace","path":"/files/0/name","value":"../model"})", "not the plain name"},
      {R"({"op":"replace","path":"/files/0/name","value":"/etc/passwd"})", "not the plain name"},
      {R"({"op":"replace","path":"/files/0/name","value":".."})", "not the plain name"},
      {R"({"op":"replace","path":"/files/0/name","value":""})", "not the plain name"},
      {R"({"op":"replace","path":"/files/0/name","value":"a\u0000b"})", "not the plain name"},
      {R"({"op":"replace","path":"/files/0/name","value":"manifest.json"})", "not the plain name"},
      {R"({"op":"replace","path":"/files/0/xxh3_128","value":"0123"})", "is not a digest"},
      {R"({"op":"copy","from":"/files/0","path":"/files/1"})", "is listed twice"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.change);
    const std::string text = good_manifest().patch(json::array({json::parse(c.change)})).dump();
    const auto [status, message] = error_of([&] { parse_manifest(text, "here"); });
    EXPECT_EQ(status, Exit::kCheckpoint);
    EXPECT_THAT(message, StartsWith("here: "));
    EXPECT_THAT(message, HasSubstr(c.complaint));
  }
  EXPECT_EQ(parse_manifest(good_manifest().dump(), "here").step, 1000);
}

TEST(Manifest, FilesAreVerifiedBySizeAndDigest) {
  const TestFolder folder;
  write_text(folder / "a", "hello");
  write_text(folder / "b", "");
  const Manifest manifest = {1, 1, record_files(folder.path(), {"a", "b"})};
  verify_files(folder.path(), manifest);
  flip_bit(folder / "a", 2);
  write_text(folder / "b", "more");
  const auto [status, message] = error_of([&] { verify_files(folder.path(), manifest); });
  EXPECT_EQ(status, Exit::kCheckpoint);
  EXPECT_THAT(message, HasSubstr("/a: damaged: expected the digest"));
  EXPECT_THAT(message, HasSubstr("/b: too long: expected 0 bytes, found 4"));
}

}  // namespace
}  // namespace brim::checkpoint
