#include "framework/telemetry/tensorboard/tf_record.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/temporary_folder.h"

namespace brim::telemetry {
namespace {

using brim::testing::put_content;
using brim::testing::TemporaryFolder;

TEST(Crc32c, AgreesWithTheVectorsOfRfc3720) {
  std::string up;
  for (int i = 0; i < 32; ++i) up += static_cast<char>(i);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(up), 0x46dd794eu);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

/// The payloads that read_frame() finds in a file with these bytes.
std::vector<std::string> payloads(const TemporaryFolder& folder, const std::string& bytes) {
  put_content(folder / "records", bytes);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen((folder / "records").c_str(), "rb"), &std::fclose);
  std::vector<std::string> found;
  for (std::string frame; read_frame(file.get(), frame);) found.emplace_back(payload_of(frame));
  return found;
}

TEST(TfRecord, ReadsWhatItFramed) {
  const TemporaryFolder folder;
  const std::vector<std::string> all = {"", "a", std::string(100'000, '\0')};
  std::string bytes;
  for (const std::string& payload : all) bytes += frame_record(payload);
  EXPECT_EQ(payloads(folder, bytes), all);
}

TEST(TfRecord, StopsAtATornRecordWhereverItWasTorn) {
  const TemporaryFolder folder;
  const std::string first = frame_record("first");
  const std::string second = frame_record("second");
  for (size_t cut = 0; cut < second.size(); ++cut) {
    EXPECT_EQ(payloads(folder, first + second.substr(0, cut)), std::vector<std::string>{"first"})
        << "cut at " << cut;
  }
}

TEST(TfRecord, StopsAtAnyFlippedBit) {
  const TemporaryFolder folder;
  const std::string first = frame_record("first");
  for (size_t bit = 0; bit < 8 * first.size(); ++bit) {
    std::string damaged = first;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_TRUE(payloads(folder, damaged + first).empty()) << "bit " << bit;
  }
}

// A length with a right CRC, but more than memory holds.
TEST(TfRecord, DoesNotBelieveAHugeLength) {
  const TemporaryFolder folder;
  std::string header("\xff\xff\xff\xff\xff\xff\xff\x7f", 8);
  const uint32_t crc = crc32c(header);
  const uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  for (int i = 0; i < 4; ++i) header += static_cast<char>(masked >> (8 * i));
  EXPECT_TRUE(payloads(folder, header + "rest").empty());
}

}  // namespace
}  // namespace brim::telemetry
