// Which variables make which ranks, and what is said of those that make no sense.
#include "framework/distributed/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "framework/base/error.h"

namespace brim::distributed {
namespace {

using Variables = std::map<std::string, std::string>;
using Kind = RendezvousEndpoint::Kind;

Ranks read(const Variables& variables) {
  return read_ranks([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const Variables& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kDistributed);
    return error.what();
  }
  return "";
}

TEST(ReadRanks, NoLauncherIsOneRank) {
  const Ranks ranks = read({{"MASTER_ADDR", "left.over"}, {"MASTER_PORT", "1234"}});
  EXPECT_EQ(ranks.world, 1);
  EXPECT_EQ(ranks.rendezvous.kind, Kind::kNone);
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "n0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};

TEST(ReadRanks, Torchrun) {
  const Ranks ranks = read(kTorchrun);
  EXPECT_EQ(ranks.rank, 5);
  EXPECT_EQ(ranks.world, 8);
  EXPECT_EQ(ranks.local_rank, 1);
  EXPECT_EQ(ranks.local_world, 4);
  EXPECT_EQ(ranks.restarts, 2);
  EXPECT_EQ(ranks.rendezvous.kind, Kind::kListen);
  EXPECT_EQ(ranks.rendezvous.address, "n0");
  EXPECT_EQ(ranks.rendezvous.port, 29500);
}

TEST(ReadRanks, TorchrunsAgentServesTheStore) {
  Variables variables = kTorchrun;
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(read(variables).rendezvous.kind, Kind::kAgent);
}

TEST(ReadRanks, OnlyRankZeroTakesTheInheritedSocket) {
  Variables variables = kTorchrun;
  variables["BRIM_STORE_FD"] = "7";
  EXPECT_EQ(read(variables).rendezvous.kind, Kind::kListen);
  variables["RANK"] = "0";
  EXPECT_EQ(read(variables).rendezvous.kind, Kind::kSocket);
  EXPECT_EQ(read(variables).rendezvous.socket, 7);
}

TEST(ReadRanks, SlurmInsideSrunOnSeveralNodes) {
  const Variables step = {{"SLURM_STEP_NUM_TASKS", "7"},
                          {"SLURM_PROCID", "6"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_STEP_TASKS_PER_NODE", "3(x2),1"},
                          {"SLURM_STEP_NODELIST", "gpu[08-09,20]"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "0"}};
  const Ranks ranks = read(step);
  EXPECT_EQ(ranks.rank, 6);
  EXPECT_EQ(ranks.local_world, 1);
  EXPECT_EQ(ranks.rendezvous.kind, Kind::kListen);
  EXPECT_EQ(ranks.rendezvous.address, "gpu08");
  Variables other = step;
  other["SLURM_PROCID"] = "0";
  other["SLURM_NODEID"] = "0";
  EXPECT_EQ(read(other).local_world, 3);
  EXPECT_EQ(read(other).rendezvous.port, ranks.rendezvous.port);
  other["SLURM_STEP_TASKS_PER_NODE"] = "3(x";
  EXPECT_THAT(error_of(other), ::testing::HasSubstr("SLURM_STEP_TASKS_PER_NODE"));
}

TEST(ReadRanks, ABatchScriptWithoutSrunIsOneRank) {
  EXPECT_EQ(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}}).world, 1);
}

TEST(ReadRanks, OneMachineWithoutAMasterMeetsByAFile) {
  const Ranks mpi = read({{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"PMIX_NAMESPACE", "../../etc/passwd"}});
  EXPECT_EQ(mpi.launcher, "Open MPI");
  EXPECT_EQ(mpi.rendezvous.kind, Kind::kFile);
  EXPECT_THAT(mpi.rendezvous.file, ::testing::Not(::testing::HasSubstr("/etc")));
  const Ranks pmi = read({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(pmi.launcher, "PMI");
  EXPECT_EQ(pmi.rendezvous.kind, Kind::kFile);
}

TEST(ReadRanks, SaysWhatIsMissingOrMakesNoSense) {
  using ::testing::HasSubstr;
  EXPECT_THAT(error_of({{"WORLD_SIZE", "2"}}), HasSubstr("RANK is not set"));
  EXPECT_THAT(error_of({{"WORLD_SIZE", "2"}, {"RANK", "2"}}), HasSubstr("RANK=2"));
  EXPECT_THAT(error_of({{"WORLD_SIZE", "two"}, {"RANK", "0"}}), HasSubstr("\"two\""));
  EXPECT_THAT(error_of({{"WORLD_SIZE", "2"}, {"RANK", "0"}}), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(
      error_of(
          {{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_ADDR", "x"}, {"MASTER_PORT", "70000"}}),
      HasSubstr("65535"));
  EXPECT_THAT(error_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), HasSubstr("BRIM_RENDEZVOUS_FILE"));
  const Variables one = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "3"}};
  EXPECT_THAT(error_of(one), HasSubstr("LOCAL_RANK=3 and WORLD_SIZE=1: more ranks on this"));
  Variables few = one;
  few.emplace("LOCAL_WORLD_SIZE", "2");
  EXPECT_THAT(error_of(few), HasSubstr("LOCAL_RANK=3 and LOCAL_WORLD_SIZE=2: a rank of this"));
}

TEST(FirstHost, OfSlurmsLists) {
  EXPECT_EQ(first_host("node7"), "node7");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("gpu[08-11,20],login"), "gpu08");
  EXPECT_EQ(first_host("n[3]-ib"), "n3-ib");
  EXPECT_EQ(first_host(""), "");
  EXPECT_EQ(first_host("n["), "");
  EXPECT_EQ(first_host("n[1-"), "");
}

}  // namespace
}  // namespace brim::distributed
