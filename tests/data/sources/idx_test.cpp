// IDX files, good ones and each kind of bad one.
#include "framework/data/sources/idx.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <cstdlib>

#include "framework/data/sources/idx_source.h"

namespace brim::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using IdxBytes = std::string;

IdxBytes idx(std::initializer_list<int64_t> shape, const IdxBytes& values, char type = 8) {
  IdxBytes bytes = {0, 0, type, static_cast<char>(shape.size())};
  for (const int64_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift);
  }
  return bytes + values;
}

IdxBytes gzip(const IdxBytes& content) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
  IdxBytes out(deflateBound(&stream, content.size()) + 100, '\0');
  stream.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<uint8_t*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class IdxTest : public ::testing::Test {
 protected:
  IdxTest() {
    std::string name = (fs::temp_directory_path() / "brim_idx_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~IdxTest() override { fs::remove_all(folder_); }

  fs::path file(const std::string& name, const IdxBytes& bytes) const {
    write_file(folder_ / name, bytes);
    return folder_ / name;
  }
  /// What opening a file with these bytes says, without its path.
  std::string error(const IdxBytes& bytes) const {
    const fs::path path = file("bad.idx", bytes);
    return message([&] { IdxFile opened(path); });
  }
  template <class Action>
  std::string message(Action action) const {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kData);
      std::string text = error.what();
      EXPECT_THAT(text, HasSubstr(folder_.string() + "/"));
      for (size_t at; (at = text.find(folder_.string() + "/")) != std::string::npos;) {
        text.erase(at, folder_.string().size() + 1);
      }
      return text;
    }
    return "no error";
  }
  /// A config with 3 images of 2 × 2 and labels 0, 2, 1.
  IdxConfig config() const {
    IdxConfig result;
    result.train.images = file("images.idx", idx({3, 2, 2}, "abcdefghijkl"));
    result.train.labels = file("labels.idx", idx({3}, IdxBytes{0, 2, 1}));
    return result;
  }

  fs::path folder_;
};

TEST_F(IdxTest, ReadsImagesAndLabels) {
  const auto dataset = config().open_train({});
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->images()->shape(), (ImageShape{2, 2, 1}));
  EXPECT_EQ(dataset->classes(), 3);
  EXPECT_THAT(dataset->images()->class_names(), ElementsAre("0", "1", "2"));
  EXPECT_THAT(dataset->name(2), EndsWith("images.idx[2]"));
  std::vector<uint8_t> pixels(4);
  EXPECT_EQ(dataset->read(1, nullptr, pixels), 2);
  EXPECT_THAT(pixels, ElementsAre('e', 'f', 'g', 'h'));
  EXPECT_EQ(config().open_eval(), nullptr);
}

TEST_F(IdxTest, ReadsGzipAndRankFourTheSame) {
  IdxConfig gzipped = config();
  gzipped.train.images = file("images.gz", gzip(idx({3, 2, 2, 1}, "abcdefghijkl")));
  const auto dataset = gzipped.open_train({});
  std::vector<uint8_t> pixels(4);
  EXPECT_EQ(dataset->read(2, nullptr, pixels), 1);
  EXPECT_THAT(pixels, ElementsAre('i', 'j', 'k', 'l'));

  const IdxBytes whole = idx({3, 2, 1, 2}, "abcdefghijkl");  // a gzip file in two members
  gzipped.train.images = file("two.gz", gzip(whole.substr(0, 13)) + gzip(whole.substr(13)));
  const auto two = gzipped.open_train({});
  EXPECT_EQ(two->images()->shape(), (ImageShape{2, 1, 2}));
  two->read(0, nullptr, pixels);
  EXPECT_THAT(pixels, ElementsAre('a', 'b', 'c', 'd'));
}

TEST_F(IdxTest, SaysWhatIsWrongWithAFile) {
  EXPECT_EQ(error(""), "bad.idx: expected an IDX file, found an empty one");
  EXPECT_EQ(error("PK\3\4"),
            "bad.idx: not an IDX file: it should begin with the bytes 00 00 08, found 50 4b 03 04");
  EXPECT_THAT(error(IdxBytes(2, '\0')), HasSubstr("not an IDX file"));
  EXPECT_EQ(error(idx({1}, "a", 0x0d)),
            "bad.idx: expected values of type uint8 (08), found type 0d");
  EXPECT_EQ(error(idx({}, "")), "bad.idx: expected 1 to 4 dimensions, found 0");
  EXPECT_EQ(error(idx({1, 1, 1, 1, 1}, "a")), "bad.idx: expected 1 to 4 dimensions, found 5");
  EXPECT_EQ(error(idx({2, 2}, "").substr(0, 9)),
            "bad.idx: truncated: 9 bytes end inside the header");
  EXPECT_EQ(error(idx({0, 2, 2}, "")), "bad.idx: its header says [0, 2, 2]: it holds nothing");
  EXPECT_EQ(error(idx({2, 2}, "abc")),
            "bad.idx: truncated: its header says [2, 2], 16 bytes in all, found 15");
  EXPECT_EQ(error(idx({2, 2}, "abcde")),
            "bad.idx: too long: its header says [2, 2], 16 bytes in all, found 17");
  EXPECT_THAT(error(idx({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, "a")),
              HasSubstr("more than any file of this format"));
}

TEST_F(IdxTest, SaysWhatIsWrongWithAGzipFile) {
  const IdxBytes good = idx({100, 10}, IdxBytes(1000, 'x'));
  EXPECT_EQ(error(gzip(good)), "no error");
  EXPECT_EQ(error(gzip(good).substr(0, 20)), "bad.idx: truncated: the gzip data ends too early");
  const IdxBytes without_end = gzip(good).substr(0, gzip(good).size() - 4);
  EXPECT_EQ(error(without_end), "bad.idx: truncated: the gzip data ends too early");
  IdxBytes flipped = gzip(good);
  flipped[flipped.size() - 6] ^= 1;  // in the checksum
  EXPECT_EQ(error(flipped), "bad.idx: damaged gzip data: incorrect data check");
  EXPECT_EQ(error(gzip(good) + "tail"), "bad.idx: 4 bytes follow the end of the gzip data");
  EXPECT_EQ(error(gzip(idx({100, 10}, IdxBytes(999, 'x')))),
            "bad.idx: truncated: its header says [100, 10], 1012 bytes in all, found 1011");
  EXPECT_EQ(error(gzip(idx({100, 10}, IdxBytes(100'000, 'x')))),
            "bad.idx: too long: its header says [100, 10], 1012 bytes in all, found more");
  EXPECT_EQ(error(gzip("not idx")),
            "bad.idx: not an IDX file: it should begin with the bytes 00 00 08, found 6e 6f 74 20");
  EXPECT_THAT(error(gzip("")), HasSubstr("found an empty one"));
}

TEST_F(IdxTest, RefusesABombBeforeAllocating) {
  // 1 TiB by its header, a few bytes on disk.
  EXPECT_THAT(error(gzip(idx({1 << 20, 1 << 10, 1 << 9}, ""))),
              HasSubstr("compressed bytes can't hold"));
}

TEST_F(IdxTest, SaysWhatDoesNotFitTogether) {
  IdxConfig c = config();
  c.train.labels = file("labels.idx", idx({2}, IdxBytes{0, 1}));
  EXPECT_EQ(message([&] { c.open_train({}); }),
            "images.idx holds 3 images, but labels.idx holds 2 labels");
  c = config();
  c.classes = 2;
  EXPECT_EQ(message([&] { c.open_train({}); }),
            "labels.idx[1]: expected a label from 0 to 1, found 2");
  c = config();
  std::swap(c.train.images, c.train.labels);
  EXPECT_THAT(message([&] { c.open_train({}); }), HasSubstr("labels.idx: expected images"));
  c = config();
  c.train.labels = c.train.images;
  EXPECT_THAT(message([&] { c.open_train({}); }), HasSubstr("images.idx: expected labels"));
  c = config();
  c.train.images = folder_ / "missing.idx";
  EXPECT_EQ(message([&] { c.open_train({}); }),
            "missing.idx: cannot open: No such file or directory");
}

TEST_F(IdxTest, EvaluationDataFitsTraining) {
  IdxConfig c = config();
  c.eval.images = file("eval.idx", idx({1, 2, 2}, "wxyz"));
  c.eval.labels = file("eval_labels.idx", idx({1}, IdxBytes{1}));
  const auto dataset = c.open_eval();
  EXPECT_EQ(dataset->size(), 1);
  EXPECT_EQ(dataset->classes(), 3);  // as in training

  c.eval.labels = file("eval_labels.idx", idx({1}, IdxBytes{3}));
  EXPECT_EQ(message([&] { c.open_eval(); }),
            "eval_labels.idx[0]: expected a label from 0 to 2, found 3");

  c.eval.labels = file("eval_labels.idx", idx({1}, IdxBytes{0}));
  c.eval.images = file("eval.idx", gzip(idx({1, 4, 1}, "wxyz")));
  EXPECT_EQ(message([&] { c.open_eval(); }),
            "eval.idx: expected images of 2 x 2 x 1 as in images.idx, found 4 x 1 x 1 (height, "
            "width, channels)");

  c.eval.labels.clear();
  try {
    c.open_eval();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
    EXPECT_STREQ(error.what(), "[data.eval]: 'images' is given without 'labels'");
  }
}

}  // namespace
}  // namespace brim::data
