// What a program prints and the status it leaves with, for each kind of error.
#include "framework/base/error.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace brim {
namespace {

/// The status of a program whose body is `body`, and what it wrote to stderr.
template <class Body>
std::pair<int, std::string> run(Body body) {
  ::testing::internal::CaptureStderr();
  const int status = run_program(body, 0, nullptr);
  return {status, ::testing::internal::GetCapturedStderr()};
}

TEST(Errors, EachKindHasItsWordAndStatus) {
  const std::vector<std::pair<Exit, std::string>> kinds = {
      {Exit::kBug, "1 bug"},           {Exit::kRecipe, "2 recipe"},
      {Exit::kData, "3 data"},         {Exit::kCheckpoint, "4 checkpoint"},
      {Exit::kResource, "5 resource"}, {Exit::kDistributed, "6 distributed"},
      {Exit::kNumeric, "7 numeric"},   {Exit::kStopped, "75 stopped"},
      {Exit::kDone, "0 done"}};
  for (const auto& [status, text] : kinds) {
    EXPECT_EQ(fmt::format("{} {}", static_cast<int>(status), exit_name(status)), text);
  }
}

TEST(Errors, BodyThatReturnsKeepsItsStatus) {
  EXPECT_EQ(run([](int, char**) { return 75; }), std::make_pair(75, std::string()));
}

TEST(Errors, ErrorIsPrintedWithItsKind) {
  const auto [status, text] = run([](int, char**) -> int {
    throw Error(Exit::kData, "train/{}.png: expected {} bytes, found {}", 7, 10, 9);
  });
  EXPECT_EQ(status, 3);
  EXPECT_EQ(text, "error[data]: train/7.png: expected 10 bytes, found 9\n");
}

TEST(Errors, EachLineHasThePrefix) {
  const auto [status, text] =
      run([](int, char**) -> int { throw Error(Exit::kRecipe, std::string("one\ntwo {}")); });
  EXPECT_EQ(status, 2);
  EXPECT_EQ(text, "error[recipe]: one\nerror[recipe]: two {}\n");
}

TEST(Errors, OtherExceptionsAreBugs) {
  const auto [status, text] = run([](int, char**) -> int { throw std::runtime_error("odd"); });
  EXPECT_EQ(status, 1);
  EXPECT_EQ(text, "error[bug]: odd (this is a bug in Brim; please report it)\n");
}

TEST(Errors, WhatIsNoExceptionOfTheLibraryIsABug) {
  const auto [status, text] = run([](int, char**) -> int { throw 42; });
  EXPECT_EQ(status, 1);
  EXPECT_EQ(text,
            "error[bug]: an exception that is no std::exception, of type int (this is a bug in "
            "Brim; please report it)\n");
}

TEST(ErrorsDeathTest, ABugMayBeInAComponentOfTheUsersOwn) {
  const auto body = [](int, char**) -> int {
    expect_own_components();
    throw std::runtime_error("odd");
  };
  EXPECT_EXIT(std::exit(run_program(body, 0, nullptr)), testing::ExitedWithCode(1),
              R"(^error\[bug\]: odd \(this is a bug in Brim, or in a component of your own; )");
}

[[noreturn]] void throw_as_libtorch_does() {
  throw std::runtime_error("CUDA error: odd label\nException raised from f at a.cpp:1\nframe #0");
}

TEST(ErrorsDeathTest, WhatADestructorThrowsWhileAnotherErrorUnwindsIsPrinted) {
  struct Freed {
    ~Freed() { throw_as_libtorch_does(); }
  };
  const auto body = [](int, char**) -> int {
    const Freed freed;
    throw std::runtime_error("the first");
  };
  EXPECT_EXIT(run_program(body, 0, nullptr), testing::ExitedWithCode(1),
              R"(^error\[bug\]: CUDA error: odd label \(this is a bug in Brim[^#]*$)");
}

TEST(ErrorsDeathTest, WhatAThreadThrowsIsPrinted) {
  const auto body = [](int, char**) -> int {
    std::thread([] { throw Error(Exit::kData, "cut short"); }).join();
    return 0;
  };
  EXPECT_EXIT(run_program(body, 0, nullptr), testing::ExitedWithCode(3),
              R"(^error\[data\]: cut short)");
}

TEST(ErrorsDeathTest, WhateverAThreadThrowsIsPrinted) {
  const auto body = [](int, char**) -> int {
    std::thread([] { throw std::string("cut short"); }).join();
    return 0;
  };
  EXPECT_EXIT(run_program(body, 0, nullptr), testing::ExitedWithCode(1),
              R"(^error\[bug\]: an exception that is no std::exception, of type std::)");
}

TEST(Errors, ExhaustedMemoryIsAResource) {
  const auto [status, text] = run([](int, char**) -> int { throw std::bad_alloc(); });
  EXPECT_EQ(status, 5);
  EXPECT_EQ(text, "error[resource]: out of memory on the host\n");
}

}  // namespace
}  // namespace brim
