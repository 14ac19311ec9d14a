// Token files and their rows: what a language model sees, and each kind of bad file.
#include "framework/data/sources/tokens.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/random.h"
#include "framework/data/loading/loader.h"
#include "framework/data/samplers/length_bucketed.h"
#include "framework/data/samplers/shuffled.h"
#include "framework/data/sources/packing.h"
#include "tests/support/temporary_folder.h"

namespace brim::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kEnd = 99;

class TokensTest : public ::testing::Test {
 protected:
  /// A config for a file of these ids.
  TokensConfig config(const std::vector<uint32_t>& ids, TokenType type = TokenType::kUint16) {
    std::string bytes;
    for (const uint32_t id : ids) {
      bytes.append(reinterpret_cast<const char*>(&id), type == TokenType::kUint16 ? 2 : 4);
    }
    TokensConfig result;
    result.train = folder_.path() / "train.bin";
    result.type = type;
    result.vocabulary = kEnd + 1;
    write_file(result.train, bytes);
    return result;
  }
  template <class Action>
  std::string message(Action action, Exit status = Exit::kData) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), status);
      std::string text = error.what();
      const std::string prefix = folder_.path().string() + "/";
      const size_t at = text.find(prefix);
      return at == std::string::npos ? text : text.erase(at, prefix.size());
    }
    return "no error";
  }

  testing::TemporaryFolder folder_;
};

std::vector<int32_t> sample(const Dataset& dataset, int64_t index) {
  std::vector<int32_t> values(static_cast<size_t>(dataset.sample_bytes()) / sizeof(int32_t), -1);
  dataset.read(index, nullptr,
               {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(int32_t)});
  return values;
}

std::vector<uint32_t> counting(uint32_t count) {
  std::vector<uint32_t> ids(count);
  for (uint32_t i = 0; i < count; ++i) ids[i] = i % 90;
  return ids;
}

TEST_F(TokensTest, TheStreamIsCutIntoWindowsThatShareAToken) {
  for (const TokenType type : {TokenType::kUint16, TokenType::kUint32}) {
    TokensConfig c = config(counting(12), type);
    c.length = 3;
    const auto dataset = c.open_train({});
    ASSERT_EQ(dataset->size(), 3);  // two tokens are left
    EXPECT_THAT(sample(*dataset, 0), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(sample(*dataset, 1), ElementsAre(3, 4, 5, 6));
    EXPECT_THAT(sample(*dataset, 2), ElementsAre(6, 7, 8, 9));
    EXPECT_EQ(dataset->classes(), 0);
    EXPECT_EQ(dataset->length(0), std::nullopt);
    EXPECT_THAT(dataset->name(1), HasSubstr("train.bin[tokens 3 to 6]"));
    EXPECT_EQ(c.open_eval(), nullptr);
  }
}

TEST_F(TokensTest, EveryTokenIsPredictedOnceAnEpoch) {
  for (const int64_t tokens : {2, 9, 100, 1000, 20'000}) {
    for (const int64_t length : {1, 7, 64, 5000}) {
      if (tokens <= length) continue;
      std::vector<uint32_t> ids(static_cast<size_t>(tokens));
      std::iota(ids.begin(), ids.end(), 0);
      TokensConfig c = config(ids, TokenType::kUint32);
      c.vocabulary = tokens;
      c.length = length;
      const auto dataset = c.open_train({});
      std::vector<int32_t> predicted;
      Loader loader(*dataset, {.global_batch = 7,
                               .micro_batch = 3,
                               .workers = 2,
                               .order = shuffled_order(*dataset, 1, {}),
                               .epochs = 1});
      while (const Batch* batch = loader.next()) {
        std::vector<int32_t> values(batch->pixels.size() / sizeof(int32_t));
        std::memcpy(values.data(), batch->pixels.data(), batch->pixels.size());
        for (int64_t row = 0; row < batch->count; ++row) {
          for (int64_t i = 0; i < length; ++i) {
            const auto at = static_cast<size_t>(row * (length + 1) + i);
            EXPECT_EQ(values[at + 1], values[at] + 1);
            predicted.push_back(values[at + 1]);
          }
        }
      }
      std::ranges::sort(predicted);
      std::vector<int32_t> expected(static_cast<size_t>((tokens - 1) / length * length));
      std::iota(expected.begin(), expected.end(), 1);
      EXPECT_EQ(predicted, expected) << tokens << " " << length;
    }
  }
}

TEST_F(TokensTest, DocumentsArePackedFirstFit) {
  //  Documents of 3, 5, 2, 3 tokens and one that the file ends; rows of 6.
  TokensConfig c = config({1, 2, kEnd, 3, 4, 5, 6, kEnd, 7, kEnd, 8, 9, kEnd, 10, 11});
  c.length = 5;
  c.packing = Packing::kDocuments;
  const auto dataset = c.open_train({});
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(sample(*dataset, 0), ElementsAre(1, 2, kEnd, 7, kEnd, 0,  //
                                               0, 1, 2, 0, 1, 0,        //
                                               1, 1, 1, 2, 2, 0));
  EXPECT_THAT(sample(*dataset, 1), ElementsAre(3, 4, 5, 6, kEnd, 0,  //
                                               0, 1, 2, 3, 4, 0,     //
                                               1, 1, 1, 1, 1, 0));
  EXPECT_THAT(sample(*dataset, 2), ElementsAre(8, 9, kEnd, 10, 11, 0,  //
                                               0, 1, 2, 0, 1, 0,       //
                                               1, 1, 1, 2, 2, 0));
  EXPECT_EQ(dataset->length(0), 5);
  EXPECT_THAT(dataset->name(2), HasSubstr("train.bin[documents from token 10]"));

  c.packing = Packing::kPadded;
  const auto padded = c.open_train({});
  ASSERT_EQ(padded->size(), 5);
  EXPECT_THAT(sample(*padded, 2), ElementsAre(7, kEnd, 0, 0, 0, 0,  //
                                              0, 1, 0, 0, 0, 0,     //
                                              1, 1, 0, 0, 0, 0));
  EXPECT_EQ(padded->length(1), 5);
  LengthBucketedConfig by_length;
  const auto order = by_length.order(*padded, {.seed = 1, .global_batch = 5});
  EXPECT_EQ(padded->length(order->at(0, 4).sample), 5);
}

TEST_F(TokensTest, LongDocumentsAreCutAndLonelyTokensLeftOut) {
  TokensConfig c = config({kEnd, 1, 2, 3, 4, 5, 6, 7, kEnd, kEnd, 8});
  c.length = 3;
  c.packing = Packing::kDocuments;
  const auto dataset = c.open_train({});
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(sample(*dataset, 0), ElementsAre(1, 2, 3, 4, 0, 1, 2, 3, 1, 1, 1, 1));
  EXPECT_THAT(sample(*dataset, 1), ElementsAre(4, 5, 6, 7, 0, 1, 2, 3, 1, 1, 1, 1));
  EXPECT_THAT(sample(*dataset, 2), ElementsAre(7, kEnd, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0));
}

/// Pairs of tokens that follow each other in a document, by the place of the second.
std::set<int64_t> pairs_of(const std::vector<uint32_t>& ids) {
  std::set<int64_t> pairs;
  for (size_t i = 1; i < ids.size(); ++i) {
    if (ids[i - 1] != kEnd) pairs.insert(static_cast<int64_t>(i));
  }
  return pairs;
}

TEST_F(TokensTest, AFileThatIsCutWhileItIsOpenEndsWhereItEndsNow) {
  const TokensConfig c = config(std::vector<uint32_t>(100, 1));
  const FileBytes file(c.train);
  std::filesystem::resize_file(c.train, 10);
  std::array<uint8_t, 20> bytes;
  EXPECT_THAT(message([&] { file.read(100, bytes); }),
              HasSubstr("20 bytes at byte 100, the file ends at 10"));
}

TEST_F(TokensTest, PackingKeepsEveryPairOfADocumentOnce) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomStream random(seed, 0, 0);
    std::vector<uint32_t> ids(static_cast<size_t>(2 + random.below(300'000 >> (seed % 14))));
    const int64_t rarity = 1 + random.below(60);
    for (uint32_t& id : ids) id = random.below(rarity) == 0 ? kEnd : 1;
    const int64_t longest = 2 + random.below(50);
    const TokensConfig c = config(ids);
    const TokenFile file(std::make_unique<FileBytes>(c.train), c.type, *c.vocabulary);
    const auto runs = find_documents(file, kEnd, longest);
    std::set<int64_t> pairs;
    for (const TokenRun& run : runs) {
      EXPECT_GE(run.count, 2);
      EXPECT_LE(run.count, longest);
      for (int64_t i = 1; i < run.count; ++i) EXPECT_TRUE(pairs.insert(run.first + i).second);
    }
    EXPECT_EQ(pairs, pairs_of(ids)) << seed;

    const auto rows = PackedRows::first_fit(runs, longest);
    std::vector<int64_t> firsts, packed;
    std::vector<int64_t> filled;
    for (int64_t i = 0; i < rows.size(); ++i) {
      EXPECT_FALSE(rows.row(i).empty());
      filled.push_back(0);
      for (const TokenRun& run : rows.row(i)) {
        filled.back() += run.count;
        packed.push_back(run.first);
      }
      EXPECT_LE(filled.back(), longest);
    }
    // The plain way to say first fit.
    std::vector<int64_t> expected;
    for (const TokenRun& run : runs) {
      firsts.push_back(run.first);
      auto row = std::ranges::find_if(
          expected, [&](int64_t tokens) { return tokens + run.count <= longest; });
      if (row == expected.end()) row = expected.insert(row, 0);
      *row += run.count;
    }
    EXPECT_EQ(filled, expected);
    std::ranges::sort(packed);
    EXPECT_EQ(packed, firsts);
  }
}

TEST_F(TokensTest, IdsOutsideTheVocabularyAreNamedWithTheirPlace) {
  for (const int64_t at : {0, 1, 4095, 4096, 9998, 9999}) {
    for (const TokenType type : {TokenType::kUint16, TokenType::kUint32}) {
      std::vector<uint32_t> ids = counting(10'000);
      ids[static_cast<size_t>(at)] = 100;
      TokensConfig c = config(ids, type);
      c.length = 9999;
      const auto dataset = c.open_train({});
      EXPECT_EQ(message([&] { sample(*dataset, 0); }),
                fmt::format("train.bin: expected token ids from 0 to 99 (data.vocabulary - 1), "
                            "found 100 at token {}, byte {}; expected the tokenizer's ids "
                            "in data.vocabulary, and the type of the file's tokens in data.type",
                            at, type == TokenType::kUint16 ? 2 * at : 4 * at));
      c.packing = Packing::kDocuments;
      EXPECT_THAT(message([&] { c.open_train({}); }), HasSubstr("found 100 at token"));
      c.vocabulary = 101;
      c.end_of_document = 50;
      EXPECT_EQ(message([&] { sample(*c.open_train({}), 0); }), "no error");
    }
  }
  for (const uint32_t id : {0x7fffffffU, 0x80000000U, 0xffffffffU}) {
    TokensConfig c = config({1, 2, id, 3}, TokenType::kUint32);
    c.length = 3;
    EXPECT_THAT(message([&] { sample(*c.open_train({}), 0); }),
                HasSubstr(fmt::format("found {} at token 2, byte 8", id)));
    c.vocabulary = int64_t{1} << 31;
    EXPECT_EQ(message([&] { sample(*c.open_train({}), 0); }) == "no error", id == 0x7fffffffU);
  }
  TokensConfig all_ids = config({0, 65'535, 65'534});
  all_ids.vocabulary = 65'536;
  all_ids.length = 2;
  EXPECT_THAT(sample(*all_ids.open_train({}), 0), ElementsAre(0, 65'535, 65'534));
}

TEST_F(TokensTest, DigestsTellTheirRowsApart) {
  std::vector<uint32_t> ids(4096);
  std::iota(ids.begin(), ids.end(), 0);
  for (uint32_t& id : ids) id %= kEnd;
  const auto of = [&] {
    TokensConfig tokens = config(ids);
    tokens.length = 16;
    return digest_of(*tokens.open_train(AugmentConfig()));
  };
  const std::string first = of();
  EXPECT_EQ(of(), first);
  std::ranges::reverse(ids);
  const std::string reversed = of();
  EXPECT_NE(reversed, first);
  ids[0] = kEnd + 1;  // no token: a row that can't be read is the loader's to tell
  EXPECT_NE(of(), reversed);
}

TEST_F(TokensTest, SaysWhatIsWrongWithAFile) {
  TokensConfig c = config(counting(4));
  c.length = 4;
  EXPECT_EQ(message([&] { c.open_train({}); }),
            "train.bin: expected at least 5 tokens, one more than data.length, found 4");
  c = config({});
  EXPECT_THAT(message([&] { c.open_train({}); }), HasSubstr("found 0"));
  c.packing = Packing::kDocuments;
  EXPECT_EQ(message([&] { c.open_train({}); }),
            "train.bin: expected documents of at least 2 tokens, found none");
  write_file(c.train, "abc");
  EXPECT_EQ(message([&] { c.open_train({}); }),
            "train.bin: expected whole tokens of 2 bytes, found 3 bytes");
  c.end_of_document = 100;
  EXPECT_EQ(message([&] { c.open_train({}); }, Exit::kRecipe),
            "[data]: expected 'end_of_document' to be below 'vocabulary' (100), found 100");
  c.train = folder_.path() / "missing.bin";
  EXPECT_EQ(message([&] { c.open_train({}); }),
            "missing.bin: cannot open: No such file or directory");
}

TEST_F(TokensTest, AFileThatIsCutShortWhileInUseIsAnError) {
  TokensConfig c = config(counting(100'000));
  c.length = 1000;
  for (const Packing packing : {Packing::kStream, Packing::kPadded}) {
    c.packing = packing;
    c.end_of_document = 89;
    config(counting(100'000));
    const auto dataset = c.open_train({});
    std::filesystem::resize_file(c.train, 50'000);
    EXPECT_EQ(message([&] { sample(*dataset, 0); }), "no error");
    EXPECT_THAT(message([&] { sample(*dataset, dataset->size() - 1); }),
                HasSubstr("train.bin: truncated"));
  }
}

TEST_F(TokensTest, EndOfDocumentWithoutEffectIsSaidAloud) {
  TokensConfig c = config(counting(100));
  c.length = 10;
  c.end_of_document = 5;
  ::testing::internal::CaptureStderr();
  c.open_train({});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("data.end_of_document has no effect"));
}

TEST_F(TokensTest, EvaluationHasAFileOfItsOwn) {
  TokensConfig c = config(counting(100));
  c.length = 10;
  c.eval = folder_.path() / "val.bin";
  write_file(c.eval, std::string(2 * 21, '\0'));
  EXPECT_EQ(c.open_eval()->size(), 2);
}

}  // namespace
}  // namespace brim::data
