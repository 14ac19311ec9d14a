// Two ranks over Gloo: with checks, collectives that differ end on both in words. So do gradients
// that the options of data parallel training don't let differ.
#include "framework/distributed/group.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

#include "framework/base/error.h"
#include "framework/distributed/data_parallel.h"
#include "framework/distributed/sum_after_backward.h"
#include "tests/support/temporary_folder.h"

namespace brim::distributed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// What `body` threw on a rank; empty where nothing.
std::string thrown_on(int64_t number, const std::string& file,
                      const std::function<void(Group&)>& body, bool checks,
                      std::chrono::milliseconds limit = std::chrono::minutes(1)) {
  Ranks ranks;
  ranks.rank = ranks.local_rank = number;
  ranks.world = ranks.local_world = 2;
  ranks.rendezvous.kind = RendezvousEndpoint::Kind::kFile;
  ranks.rendezvous.file = file;
  try {
    const auto group = Group::connect(ranks, c10::kCPU, Backend::kGloo, limit, checks);
    body(*group);
    group->finish();
  } catch (const Error& error) {
    return fmt::format("error[{}]: {}", error.kind(), error.what());
  } catch (const std::exception& error) {
    return fmt::format("no error of Brim's: {}", error.what());
  }
  return {};
}

/// The same of two, a process each: LibTorch's record of collectives is that of one rank.
std::array<std::string, 2> on_two_ranks(const std::function<void(Group&)>& body,
                                        bool checks = true) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("brim-{}", ::getpid());
  std::filesystem::create_directory(folder);
  std::array<pid_t, 2> ranks{};
  for (size_t i = 0; i < ranks.size(); ++i) {
    ranks[i] = ::fork();
    if (ranks[i] != 0) continue;
    const auto number = static_cast<int64_t>(i);
    std::ofstream(folder / std::to_string(i))
        << thrown_on(number, folder / "rendezvous", body, checks);
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
  EXPECT_THAT(thrown[0], AllOf(HasSubstr("error[distributed]: the ranks don't do the same; this "
                                         "one is in another sum"),
                               HasSubstr("ALLREDUCE"), HasSubstr("Rank 1 is running collective"),
                               HasSubstr("BROADCAST")));
  EXPECT_THAT(thrown[1], HasSubstr("this one is in a question"));
}

TEST(CheckedGroup, NamesShapesThatDiffer) {
  const auto thrown = on_two_ranks(
      [](Group& group) { group.all_reduce(at::zeros({group.rank() + 2}), Reduce::kSum, "a sum"); });
  EXPECT_THAT(thrown[0], AllOf(HasSubstr("TensorShape=[2]"), HasSubstr("TensorShape=[3]")));
}

struct TwoHeads : torch::nn::Module {
  torch::nn::Linear head{3, 1}, other{3, 1};
  TwoHeads() {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : {head->weight, head->bias, other->weight, other->bias}) {
      parameter.fill_(1);  // the same on both ranks
    }
    register_module("head", head);
    register_module("other", other);
  }
};

/// Three steps, in those of which `uses_other(rank, step)` the loss uses the other head.
template <class Strategy = DataParallel>
std::array<std::string, 2> train_heads(const DataParallelOptions& options,
                                       const std::function<bool(int64_t, int)>& uses_other) {
  const auto train = [&](Group& group) {
    TwoHeads heads;
    const std::shared_ptr<Group> borrowed(&group, [](Group*) {});
    Strategy parallel(borrowed, heads, options);
    for (int step = 1; step <= 3; ++step) {
      parallel.before_forward(/*sums=*/true);
      const at::Tensor inputs = at::ones({2, 3});
      at::Tensor loss = heads.head(inputs).sum();
      if (uses_other(group.rank(), step)) loss = loss + heads.other(inputs).sum();
      try {
        parallel.backward(loss, /*sums=*/true, [&] { loss.backward(); });
      } catch (const Error& error) {
        parallel.reset();
        group.barrier("the end of the test");  // the ranks are in step
        throw Error(error.status(), "step {}: {}", step, error.what());
      }
    }
  };
  return on_two_ranks(train, /*checks=*/false);
}

/// What two ranks say on stderr that wait for each other for no longer than 2 s.
std::array<std::string, 2> last_words_of_two_ranks(const std::function<void(Group&)>& body) {
  const testing::TemporaryFolder folder;
  std::array<pid_t, 2> ranks{};
  for (size_t i = 0; i < ranks.size(); ++i) {
    ranks[i] = ::fork();
    if (ranks[i] != 0) continue;
    const int said = ::open((folder / std::to_string(i)).c_str(), O_CREAT | O_WRONLY, 0600);
    ::dup2(said, STDERR_FILENO);
    thrown_on(static_cast<int64_t>(i), folder / "rendezvous", body, /*checks=*/false,
              std::chrono::seconds(2));
    ::_exit(0);
  }
  std::array<std::string, 2> words;
  for (size_t i = 0; i < ranks.size(); ++i) {
    ::waitpid(ranks[i], nullptr, 0);
    std::ifstream said(folder / std::to_string(i));
    words[i].assign(std::istreambuf_iterator<char>(said), {});
  }
  return words;
}

TEST(Watchdog, NamesARankThatHasOnlyWaitedForAnEarlierCollective) {
  const auto said = last_words_of_two_ranks([](Group& group) {
    Pending early = group.start_all_reduce(at::ones({3}), Reduce::kSum, "an early sum");
    if (group.rank() == 1) {
      early.wait();
      std::this_thread::sleep_for(std::chrono::minutes(1));
    }
    group.all_reduce(at::ones({3}), Reduce::kSum, "a later sum");
  });
  for (const std::string& text : said) {
    EXPECT_THAT(text, AllOf(HasSubstr("rank 1 "), HasSubstr("kept the others waiting"),
                            HasSubstr("a later sum")));
  }
}

TEST(DataParallel, NamesParametersThatTheLossOfOneRankLeavesOut) {
  const auto said = AllOf(HasSubstr("error[recipe]: step 1: rank 1's loss leaves out other.weight, "
                                    "other.bias. "),
                          HasSubstr("Set distributed.unused_parameters = true"));
  EXPECT_THAT(train_heads({}, [](int64_t rank, int) { return rank == 0; }), ::testing::Each(said));
}

TEST(DataParallel, NamesParametersThatEveryLossLeavesOut) {
  EXPECT_THAT(train_heads({}, [](int64_t, int step) { return step < 2; }),
              ::testing::Each(HasSubstr("step 2: rank 0's loss leaves out other.weight")));
}

TEST(DataParallel, NamesParametersThatAStaticGraphHadUsed) {
  EXPECT_THAT(train_heads({.static_graph = true},
                          [](int64_t rank, int step) { return rank == 0 || step < 3; }),
              ::testing::Each(AllOf(HasSubstr("step 3: rank 1's loss leaves out other.weight"),
                                    HasSubstr("Set distributed.static_graph = false"))));
}

TEST(DataParallel, LetsALossLeaveOutWhatTheOptionsSay) {
  for (const bool is_static : {false, true}) {
    const DataParallelOptions options = {.unused_parameters = true, .static_graph = is_static};
    const auto uses_other = [&](int64_t rank, int step) { return !is_static && rank == step % 2; };
    EXPECT_THAT(train_heads(options, uses_other), ::testing::Each(""));
  }
}

struct OfTwoTypes : torch::nn::Module {
  at::Tensor kernel, matrix, bias;
  OfTwoTypes() {
    const at::Tensor values = at::arange(48, at::kFloat).view({4, 3, 2, 2});
    kernel = register_parameter("kernel", values.contiguous(at::MemoryFormat::ChannelsLast));
    matrix = register_parameter("matrix", at::arange(10, at::kDouble).view({5, 2}));
    bias = register_parameter("bias", at::ones({2}, at::kDouble));
  }
  at::Tensor loss(double factor) const {
    return (kernel * factor).square().sum().to(at::kDouble) + (matrix * factor + bias).pow(3).sum();
  }
};

/// The gradients of two steps, of which rank 1 gives the second one up once.
template <class Strategy>
std::vector<at::Tensor> summed_gradients(Group& group, const DataParallelOptions& options) {
  OfTwoTypes model;
  const std::shared_ptr<Group> borrowed(&group, [](Group*) {});
  Strategy strategy(borrowed, model, options);
  std::vector<at::Tensor> gradients;
  const auto pass = [&](int64_t number, bool sums) {
    strategy.before_forward(sums);
    const at::Tensor loss = model.loss(static_cast<double>(number + 2 * group.rank()));
    return strategy.backward(loss, sums, [&] { loss.backward(); });
  };
  const auto keep = [&] {
    for (const at::Tensor& parameter : model.parameters()) {
      gradients.push_back(parameter.grad().clone());
    }
  };
  EXPECT_TRUE(pass(1, false));
  EXPECT_TRUE(pass(2, true));
  keep();
  strategy.reset();
  if (group.rank() == 0) {
    EXPECT_FALSE(pass(3, true));
  } else {
    strategy.before_forward(true);
    strategy.give_up();
  }
  strategy.reset();
  EXPECT_TRUE(pass(3, true));
  keep();
  return gradients;
}

TEST(SumAfterBackward, GivesTheGradientsOfDataParallel) {
  for (const double bucket_mib : {25.0, 1e-5}) {
    const auto compare = [bucket_mib](Group& group) {
      const DataParallelOptions options = {.bucket_mib = bucket_mib};
      const auto expected = summed_gradients<DataParallel>(group, options);
      const auto found = summed_gradients<SumAfterBackward>(group, options);
      if (found.size() != 6 || expected.size() != 6)
        throw Error(Exit::kBug, "gradients are missing");
      for (size_t i = 0; i < found.size(); ++i) {
        if (found[i].strides() != expected[i].strides()) throw Error(Exit::kBug, "strides differ");
        if (!found[i].equal(expected[i])) throw Error(Exit::kBug, "gradient {} differs", i);
      }
    };
    EXPECT_THAT(on_two_ranks(compare, /*checks=*/false), ::testing::Each(""));
  }
}

TEST(SumAfterBackward, NamesParametersThatTheLossOfOneRankLeavesOut) {
  EXPECT_THAT(train_heads<SumAfterBackward>({}, [](int64_t rank, int) { return rank == 0; }),
              ::testing::Each(
                  AllOf(HasSubstr("step 1: rank 1's loss leaves out other.weight, other.bias. "))));
}

TEST(DataParallel, RefusesSparseGradientsByName) {
  const auto train = [](Group& group) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 4).sparse(true));
    torch::nn::init::ones_(table->weight);  // the same on both ranks
    const std::shared_ptr<Group> borrowed(&group, [](Group*) {});
    DataParallel parallel(borrowed, *table, {});
    parallel.before_forward(/*sums=*/true);
    const at::Tensor loss = table(at::arange(3)).sum();
    parallel.backward(loss, /*sums=*/true, [&] { loss.backward(); });
  };
  EXPECT_THAT(on_two_ranks(train, /*checks=*/false),
              ::testing::Each(HasSubstr(
                  "error[recipe]: sparse gradients are not supported: parameter weight")));
}

}  // namespace
}  // namespace brim::distributed
