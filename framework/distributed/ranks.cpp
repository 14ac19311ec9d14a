#include "framework/distributed/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "framework/base/error.h"
#include "framework/distributed/rendezvous.h"

namespace brim::distributed {
namespace {

constexpr int64_t kMaxRanks = 1 << 20;

/// Reads numbers and texts, and says in words what is wrong with them.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  bool has(const char* name) const { return environment_(name) != nullptr; }

  std::string text(const char* name) const {
    const char* value = environment_(name);
    return value == nullptr ? std::string() : value;
  }

  std::optional<int64_t> number(const char* name, int64_t low, int64_t high) const {
    const char* value = environment_(name);
    if (value == nullptr) return std::nullopt;
    const std::string_view digits = value;
    int64_t result = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), result);
    if (code != std::errc() || end != digits.data() + digits.size() || result < low ||
        result > high) {
      throw Error(Exit::kDistributed,
                  "the environment variable {}: expected a number from {} to {}, found \"{}\"",
                  name, low, high, digits);
    }
    return result;
  }

  int64_t required(const char* name, int64_t low, int64_t high, const char* because) const {
    const std::optional<int64_t> value = number(name, low, high);
    if (!value) {
      throw Error(Exit::kDistributed,
                  "the environment variable {} is not set, though {} is; start every rank with the "
                  "same launcher, or unset {}",
                  name, because, because);
    }
    return *value;
  }

 private:
  const Environment& environment_;
};

/// Names of a launcher's variables; the first one tells that it is there.
struct Variables {
  const char* launcher;
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world;
};

constexpr Variables kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                 "LOCAL_WORLD_SIZE"};
constexpr Variables kOpenMpi = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Variables kPmi = {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

Ranks read(const Reader& reader, const Variables& names) {
  Ranks ranks;
  ranks.launcher = names.launcher;
  ranks.world = reader.required(names.world, 1, kMaxRanks, names.rank);
  ranks.rank = reader.required(names.rank, 0, kMaxRanks, names.world);
  if (ranks.rank >= ranks.world) {
    throw Error(Exit::kDistributed, "{}={} and {}={}: a rank is less than the number of ranks",
                names.rank, ranks.rank, names.world, ranks.world);
  }
  // A launcher that says nothing of machines has one rank on each.
  ranks.local_rank = reader.number(names.local_rank, 0, kMaxRanks).value_or(0);
  const auto local_world = reader.number(names.local_world, 1, kMaxRanks);
  if (local_world && ranks.local_rank >= *local_world) {
    throw Error(Exit::kDistributed,
                "{}={} and {}={}: a rank of this machine is less than their number",
                names.local_rank, ranks.local_rank, names.local_world, *local_world);
  }
  ranks.local_world = local_world.value_or(ranks.local_rank + 1);
  if (ranks.local_world > ranks.world) {
    throw Error(Exit::kDistributed, "{}={} and {}={}: more ranks on this machine than in all",
                local_world ? names.local_world : names.local_rank,
                local_world ? *local_world : ranks.local_rank, names.world, ranks.world);
  }
  return ranks;
}

/// How many of Slurm's tasks run on this node: "2(x3),1" lists them node by node.
int64_t slurm_local_world(const Reader& reader, int64_t world) {
  const std::string list = reader.text("SLURM_STEP_TASKS_PER_NODE");
  const int64_t node = reader.number("SLURM_NODEID", 0, kMaxRanks).value_or(0);
  int64_t first = 0;
  for (size_t at = 0; at < list.size();) {
    int64_t tasks = 0, nodes = 1;
    const char* end = list.data() + list.size();
    auto [after, code] = std::from_chars(list.data() + at, end, tasks);
    if (code != std::errc() || tasks < 1 || tasks > world) break;
    if (end - after >= 2 && after[0] == '(' && after[1] == 'x') {
      const auto repeat = std::from_chars(after + 2, end, nodes);
      if (repeat.ec != std::errc() || nodes < 1 || nodes > kMaxRanks) break;
      after = repeat.ptr + (repeat.ptr != end ? 1 : 0);
    }
    if (node < first + nodes) return tasks;
    first += nodes;
    at = static_cast<size_t>(after - list.data()) + 1;
  }
  throw Error(Exit::kDistributed,
              "SLURM_STEP_TASKS_PER_NODE=\"{}\": expected the tasks of each node, as in \"4(x2)\", "
              "of node {} too",
              list, node);
}

Ranks read_slurm(const Reader& reader) {
  constexpr const char* kWorld = "SLURM_STEP_NUM_TASKS";
  Ranks ranks;
  ranks.launcher = "Slurm";
  ranks.world = *reader.number(kWorld, 1, kMaxRanks);
  ranks.rank = reader.required("SLURM_PROCID", 0, ranks.world - 1, kWorld);
  ranks.local_rank = reader.required("SLURM_LOCALID", 0, ranks.world - 1, kWorld);
  ranks.local_world = slurm_local_world(reader, ranks.world);
  ranks.restarts = reader.number("SLURM_RESTART_COUNT", 0, kMaxRanks).value_or(0);
  return ranks;
}

/// What names this start among all others of this user on this machine.
std::string job_name(const Reader& reader, const Ranks& ranks) {
  std::string name = ranks.launcher;
  for (const char* part : {"SLURM_JOB_ID", "SLURM_STEP_ID", "OMPI_MCA_ess_base_jobid",
                           "PMIX_NAMESPACE", "PMI_JOBID", "HYDI_CONTROL_FD"}) {
    if (reader.has(part)) name += "-" + reader.text(part);
  }
  for (char& letter : name) {
    const bool is_plain = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                          (letter >= 'A' && letter <= 'Z') || letter == '.' || letter == '-';
    if (!is_plain) letter = '_';
  }
  return fmt::format("{}-{}", name, ranks.restarts);
}

RendezvousEndpoint rendezvous_endpoint(const Reader& reader, const Ranks& ranks) {
  using Kind = RendezvousEndpoint::Kind;
  RendezvousEndpoint rendezvous;
  if (ranks.world == 1) return rendezvous;
  if (reader.has("BRIM_RENDEZVOUS_FILE")) {
    rendezvous.kind = Kind::kFile;
    rendezvous.file = reader.text("BRIM_RENDEZVOUS_FILE");
    return rendezvous;
  }
  rendezvous.address = reader.text("MASTER_ADDR");
  rendezvous.port = static_cast<uint16_t>(reader.number("MASTER_PORT", 1, 65535).value_or(0));
  const std::optional<int64_t> socket = reader.number("BRIM_STORE_FD", 3, 1 << 20);
  if (!rendezvous.address.empty() && rendezvous.port != 0) {
    rendezvous.kind = Kind::kListen;
    if (socket && ranks.rank == 0) {
      rendezvous.kind = Kind::kSocket;
      rendezvous.socket = static_cast<int>(*socket);
    }
    if (reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True") rendezvous.kind = Kind::kAgent;
    return rendezvous;
  }
  if (ranks.launcher != kTorchrun.launcher && ranks.one_machine()) {
    rendezvous.kind = Kind::kFile;
    rendezvous.file = fmt::format("/tmp/brim-{}/{}", ::getuid(), job_name(reader, ranks));
    return rendezvous;
  }
  if (ranks.launcher == "Slurm") {
    // Every rank works out the same port. Jobs of one node seldom meet in it: they differ in
    // number.
    const int64_t job = reader.number("SLURM_JOB_ID", 0, INT64_MAX / 64).value_or(0);
    const int64_t step = reader.number("SLURM_STEP_ID", 0, INT64_MAX / 64).value_or(0);
    if (rendezvous.address.empty())
      rendezvous.address = first_host(reader.text("SLURM_STEP_NODELIST"));
    if (rendezvous.port == 0)
      rendezvous.port = static_cast<uint16_t>(20000 + (job * 16 + step) % 10000);
    if (!rendezvous.address.empty()) {
      rendezvous.kind = Kind::kListen;
      return rendezvous;
    }
  }
  throw Error(Exit::kDistributed,
              "{} says that there are {} ranks but not where they meet: set MASTER_ADDR (rank 0's "
              "address) and MASTER_PORT (a free port there), or BRIM_RENDEZVOUS_FILE (a path that "
              "every rank sees)",
              ranks.launcher, ranks.world);
}

Ranks read_launcher(const Reader& reader) {
  if (reader.has(kTorchrun.rank) || reader.has(kTorchrun.world)) {
    Ranks ranks = read(reader, kTorchrun);
    if (!reader.has(kTorchrun.local_world)) {  // Kubeflow's: one rank a machine, or all on one
      ranks.local_world = ranks.local_rank + 1;
    }
    ranks.restarts = reader.number("TORCHELASTIC_RESTART_COUNT", 0, kMaxRanks).value_or(0);
    return ranks;
  }
  if (reader.has("SLURM_STEP_NUM_TASKS")) return read_slurm(reader);
  if (reader.has(kOpenMpi.rank)) return read(reader, kOpenMpi);
  if (reader.has(kPmi.rank)) return read(reader, kPmi);
  return {};
}

}  // namespace

Ranks read_ranks(const Environment& environment) {
  const Reader reader(environment);
  Ranks ranks = read_launcher(reader);
  ranks.rendezvous = rendezvous_endpoint(reader, ranks);
  ranks.launch =
      ranks.launcher == "Slurm" ? "slurm-" + reader.text("SLURM_JOB_ID") : parent_launch();
  return ranks;
}

Ranks read_ranks() {
  return read_ranks([](const char* name) { return std::getenv(name); });
}

std::string parent_launch() {
  const pid_t parent = ::getppid();
  return fmt::format("{}-{}", parent, start_time(parent).value_or(0));
}

std::string first_host(const std::string& list) {
  const size_t end = list.find_first_of("[,");
  if (end == std::string::npos || list[end] == ',') return list.substr(0, end);
  const size_t stop = list.find_first_of("-,]", end);
  if (stop == std::string::npos) return {};
  const size_t close = list.find(']', end);
  if (close == std::string::npos) return {};
  const size_t next = std::min(list.find(',', close), list.size());
  return list.substr(0, end) + list.substr(end + 1, stop - end - 1) +
         list.substr(close + 1, next - close - 1);
}

}  // namespace brim::distributed
