// Two ranks, a thread each, over Gloo: with checks, collectives that differ end on both in words.
#include "framework/distributed/group.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "framework/base/error.h"

namespace brim::distributed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// What `body` threw on each of two ranks; empty where nothing.
std::array<std::string, 2> on_two_ranks(const std::function<void(Group&)>& body) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("brim-{}", ::getpid());
  std::array<std::string, 2> thrown;
  const auto rank = [&](int64_t number) {
    Ranks ranks{.rank = number, .world = 2, .local_rank = number, .local_world = 2};
    ranks.rendezvous = {.kind = RendezvousEndpoint::Kind::kFile, .file = file};
    try {
      const auto group = Group::connect(ranks, c10::kCPU, Backend::kGloo, std::chrono::minutes(1),
                                        /*checks=*/true);
      body(*group);
      group->finish();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kDistributed);
      thrown[static_cast<size_t>(number)] = error.what();
    }
  };
  std::thread first([&] { rank(0); });
  rank(1);
  first.join();
  return thrown;
}

TEST(CheckedGroup, LetsEqualCollectivesPass) {
  EXPECT_THAT(on_two_ranks([](Group& group) {
                const at::Tensor sum = at::full({3}, group.rank() + 1, at::kFloat);
                group.all_reduce(sum, Reduce::kSum, "a sum");
                EXPECT_EQ(sum[2].item<float>(), 3);
                EXPECT_EQ(group.broadcast("said", "a text"), "said");
              }),
              ::testing::Each(""));
}

TEST(CheckedGroup, NamesTheFirstCollectiveThatDiffers) {
  const auto thrown = on_two_ranks([](Group& group) {
    const at::Tensor values = at::zeros({3, 2});
    group.all_reduce(values, Reduce::kSum, "a sum");
    if (group.rank() == 0) group.all_reduce(values, Reduce::kSum, "another sum");
    if (group.rank() == 1) group.broadcast(values, "a question");
  });
  EXPECT_THAT(thrown[0], AllOf(HasSubstr("this one is in another sum"), HasSubstr("ALLREDUCE"),
                               HasSubstr("Rank 1 is running collective"), HasSubstr("BROADCAST")));
  EXPECT_THAT(thrown[1], HasSubstr("this one is in a question"));
}

TEST(CheckedGroup, NamesShapesThatDiffer) {
  const auto thrown = on_two_ranks([](Group& group) {
    group.all_reduce(at::zeros({group.rank() + 2}), Reduce::kSum, "a sum");
  });
  EXPECT_THAT(thrown[0], AllOf(HasSubstr("TensorShape=[2]"), HasSubstr("TensorShape=[3]")));
}

}  // namespace
}  // namespace brim::distributed
