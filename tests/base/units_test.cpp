// Numbers as people read them, at the edges of each unit.
#include "framework/base/units.h"

#include <gmock/gmock.h>

#include <limits>

namespace brim {
namespace {

TEST(Units, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1572864), "1.5 MiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(int64_t{139} << 30), "139.0 GiB");
  EXPECT_EQ(format_bytes(-2048), "-2.0 KiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<int64_t>::max()), "8388608.0 TiB");
}

TEST(Units, Durations) {
  EXPECT_EQ(format_duration(0.0042), "4.2 ms");
  EXPECT_EQ(format_duration(0.8), "0.8 s");
  EXPECT_EQ(format_duration(59.94), "59.9 s");
  EXPECT_EQ(format_duration(59.96), "1 m 00 s");
  EXPECT_EQ(format_duration(185), "3 m 05 s");
  EXPECT_EQ(format_duration(3599.6), "1 h 00 m");
  EXPECT_EQ(format_duration(7800), "2 h 10 m");
  EXPECT_EQ(format_duration(360000), "100 h 00 m");
  EXPECT_EQ(format_duration(1e300), "unknown");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "unknown");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::quiet_NaN()), "unknown");
}

TEST(Units, Counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-1234), "-1,234");
  EXPECT_EQ(format_count(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Units, Plurals) {
  EXPECT_EQ(format_plural(0, "step"), "0 steps");
  EXPECT_EQ(format_plural(1, "step"), "1 step");
  EXPECT_EQ(format_plural(1234, "step"), "1,234 steps");
  EXPECT_EQ(format_plural(1, "batch", "batches"), "1 batch");
  EXPECT_EQ(format_plural(2, "batch", "batches"), "2 batches");
}

TEST(Units, NumbersHaveFourDigitsAndNoExponent) {
  EXPECT_EQ(format_number(0.0), "0");
  EXPECT_EQ(format_number(1.0), "1");
  EXPECT_EQ(format_number(98.6111), "98.61");
  EXPECT_EQ(format_number(-0.0123456), "-0.01235");
  EXPECT_EQ(format_number(3e-5), "0.00003");
  EXPECT_EQ(format_number(9999.4), "9999");
  EXPECT_EQ(format_number(9999.6), "10,000");
  EXPECT_EQ(format_number(101220.4), "101,220");
  EXPECT_EQ(format_number(-std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(format_number(std::numeric_limits<double>::infinity()), "inf");
}

TEST(Units, ClocksGoForward) {
  const double clock = now_s();
  const double age = process_age_s();
  EXPECT_GE(age, 0.0);
  EXPECT_GE(now_s(), clock);
  EXPECT_GE(process_age_s(), age);
}

TEST(Units, TimestampIsIso8601WithItsOffset) {
  EXPECT_THAT(timestamp(), ::testing::MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:"
                                                   "[0-9]{2}[+-][0-9]{4}"));
}

}  // namespace
}  // namespace brim
