// Two ranks over Gloo: with checks, collectives that differ end on both in words.
#include "framework/distributed/group.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "framework/base/error.h"

namespace brim::distributed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// What `body` threw on a rank; empty where nothing.
std::string thrown_on(int64_t number, const std::string& file,
                      const std::function<void(Group&)>& body) {
  Ranks ranks;
  ranks.rank = ranks.local_rank = number;
  ranks.world = ranks.local_world = 2;
  ranks.rendezvous.kind = RendezvousEndpoint::Kind::kFile;
  ranks.rendezvous.file = file;
  try {
    const auto group = Group::connect(ranks, c10::kCPU, Backend::kGloo, std::chrono::minutes(1),
                                      /*checks=*/true);
    body(*group);
    group->finish();
  } catch (const Error& error) {
    return error.status() == Exit::kDistributed ? error.what() : "another status";
  }
  return {};
}

/// The same of two, a process each: LibTorch's record of collectives is that of one rank.
std::array<std::string, 2> on_two_ranks(const std::function<void(Group&)>& body) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("brim-{}", ::getpid());
  std::filesystem::create_directory(folder);
  std::array<pid_t, 2> ranks{};
  for (size_t i = 0; i < ranks.size(); ++i) {
    ranks[i] = ::fork();
    if (ranks[i] != 0) continue;
    const auto number = static_cast<int64_t>(i);
    std::ofstream(folder / std::to_string(i)) << thrown_on(number, folder / "rendezvous", body);
    ::_exit(0);
  }
  std::array<std::string, 2> thrown;
  for (size_t i = 0; i < ranks.size(); ++i) {
    int status = 0;
    ::waitpid(ranks[i], &status, 0);
    std::ifstream said(folder / std::to_string(i));
    std::getline(said, thrown[i]);
    if (!said.is_open() || status != 0) thrown[i] = "died";
  }
  std::filesystem::remove_all(folder);
  return thrown;
}

TEST(CheckedGroup, LetsEqualCollectivesPass) {
  EXPECT_THAT(on_two_ranks([](Group& group) {
                const at::Tensor sum = at::full({3}, group.rank() + 1, at::kFloat);
                group.all_reduce(sum, Reduce::kSum, "a sum");
                if (sum[2].item<float>() != 3)
                  throw Error(Exit::kBug, "found {}", sum[2].item<float>());
                group.broadcast("said", "a text");
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
  const auto thrown = on_two_ranks(
      [](Group& group) { group.all_reduce(at::zeros({group.rank() + 2}), Reduce::kSum, "a sum"); });
  EXPECT_THAT(thrown[0], AllOf(HasSubstr("TensorShape=[2]"), HasSubstr("TensorShape=[3]")));
}

}  // namespace
}  // namespace brim::distributed
