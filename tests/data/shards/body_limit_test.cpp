// Which bodies are refused, and when. That none of them stays on the disk is test_shards_http.py's.
#include "framework/data/shards/body_limit.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>

namespace brim::data {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kGib = int64_t{1} << 30;

/// A disk on which the body is the only file that grows.
class BodyLimitTest : public ::testing::Test {
 protected:
  BodyLimit limit(int64_t max_bytes) {
    return {max_bytes, [this](int) { return disk_; }, -1};
  }
  /// Writes from `done` up to `bytes`, a MiB at a time; how many were written before the refusal.
  int64_t write(BodyLimit& limit, int64_t bytes, int64_t done = 0) {
    for (; done < bytes; done += kMib) {
      refusal_ = limit.grow(done + kMib);
      if (refusal_) break;
      disk_.free_bytes -= kMib;
    }
    return done;
  }
  std::string reason() const { return refusal_ ? refusal_->reason : "none"; }

  DiskSpace disk_ = {.free_bytes = 100 * kMib, .total_bytes = 200 * kMib};  // reserve: 10 MiB
  std::optional<BodyLimit::Refusal> refusal_;
};

TEST(DiskSpace, IsThatOfTheFilesDisk) {
  FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  struct statvfs status {};
  ASSERT_EQ(::fstatvfs(::fileno(file), &status), 0);
  const DiskSpace disk = disk_space(::fileno(file));
  EXPECT_EQ(disk.total_bytes, static_cast<int64_t>(status.f_frsize * status.f_blocks));
  EXPECT_LE(disk.free_bytes, disk.total_bytes);
  std::fclose(file);
  EXPECT_GT(disk_space(-1).free_bytes, 100 * kGib);  // not known: nothing is refused
}

TEST_F(BodyLimitTest, TheReserveIsATwentiethOfTheDiskAtMostAGib) {
  EXPECT_EQ(reserve_bytes(disk_), 10 * kMib);
  EXPECT_EQ(reserve_bytes({.free_bytes = 0, .total_bytes = 100'000 * kGib}), kGib);
}

TEST_F(BodyLimitTest, WithoutALengthOrACapABodyHasHalfOfTheFreeDisk) {
  BodyLimit body = limit(0);
  EXPECT_FALSE(body.begin(-1));
  EXPECT_EQ(write(body, kGib), 50 * kMib);
  EXPECT_EQ(refusal_->status, Exit::kResource);
  EXPECT_EQ(reason(),
            "expected at most 50.0 MiB of undeclared length, half of the free disk, found more. "
            "Check what the server sends there, or give data.shard_cache_gib as a cap");
}

TEST_F(BodyLimitTest, ACapIsKeptWhateverTheServerDeclares) {
  BodyLimit body = limit(60 * kMib);
  EXPECT_FALSE(body.begin(-1));
  EXPECT_EQ(write(body, kGib), 60 * kMib);
  EXPECT_EQ(refusal_->status, Exit::kData);
  EXPECT_THAT(reason(), StartsWith("expected at most 60.0 MiB, found more"));
  refusal_ = body.begin(61 * kMib);
  EXPECT_EQ(refusal_->status, Exit::kData);
  EXPECT_THAT(reason(), StartsWith("expected at most 60.0 MiB, found 61.0 MiB"));
}

TEST_F(BodyLimitTest, OthersThatFillTheDiskEndADownloadAtTheReserve) {
  for (const int64_t cap : {int64_t{0}, kGib}) {
    disk_.free_bytes = 100 * kMib;
    BodyLimit body = limit(cap);
    EXPECT_FALSE(body.begin(80 * kMib));
    EXPECT_EQ(write(body, 20 * kMib), 20 * kMib);
    disk_.free_bytes -= 60 * kMib;  // 20 are left
    EXPECT_EQ(write(body, 80 * kMib, 20 * kMib), 31 * kMib);
    EXPECT_EQ(refusal_->status, Exit::kResource);
    EXPECT_THAT(reason(), StartsWith("expected 10.0 MiB of the disk to stay free, found 9.0 MiB"));
    EXPECT_THAT(reason(), HasSubstr("data.shard_cache"));
  }
}

TEST_F(BodyLimitTest, WhatDoesNotFitIsRefusedAtOnce) {
  for (const auto& [bytes, fits] : {std::pair(90 * kMib, true), std::pair(91 * kMib, false)}) {
    BodyLimit body = limit(0);
    refusal_ = body.begin(bytes);
    EXPECT_EQ(!refusal_, fits) << bytes;
  }
  EXPECT_EQ(refusal_->status, Exit::kResource);
  EXPECT_EQ(reason(),
            "expected room for its 91.0 MiB and 10.0 MiB that stay free, found 100.0 MiB of the "
            "disk free. Make room, or name a folder on another disk as data.shard_cache");
  disk_.free_bytes = 9 * kMib;
  EXPECT_TRUE(limit(kGib).begin(-1));
}

TEST_F(BodyLimitTest, MoreThanWasDeclaredIsRefused) {
  BodyLimit body = limit(0);
  EXPECT_FALSE(body.begin(1000));
  EXPECT_FALSE(body.grow(1000));
  refusal_ = body.grow(1001);
  EXPECT_EQ(refusal_->status, Exit::kData);
  EXPECT_EQ(reason(),
            "expected the 1,000 bytes that the server declared, found more. Check the "
            "server");
}

TEST_F(BodyLimitTest, TheDiskIsTheFilesOwn) {
  std::string name = "/tmp/brim_limit_XXXXXX";
  const int fd = ::mkstemp(name.data());
  ::unlink(name.c_str());
  const DiskSpace disk = disk_space(fd);
  EXPECT_GT(disk.total_bytes, 0);
  EXPECT_LE(disk.free_bytes, disk.total_bytes);
  ::close(fd);
  EXPECT_EQ(disk_space(-1).free_bytes, 128 * kGib);
}

}  // namespace
}  // namespace brim::data
