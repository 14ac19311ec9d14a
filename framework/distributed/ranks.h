// Which of how many processes this one is, and where they meet: read from the variables that
// torchrun (trainrun and Kubeflow set the same), Slurm, Open MPI and PMI set. Nothing is opened
// here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace brim::distributed {

/// Where the store is that ranks meet at.
struct RendezvousEndpoint {
  enum class Kind {
    kNone,    // one rank: no one to meet
    kListen,  // rank 0 serves it at address:port
    kSocket,  // rank 0 serves it on a socket that the launcher opened and it inherited
    kAgent,   // the launcher serves it at address:port (torchrun)
    kFile,    // rank 0 serves it on a free port and writes it to a file
  };
  Kind kind = Kind::kNone;
  std::string address;
  uint16_t port = 0;
  int socket = -1;   // of kSocket, on rank 0
  std::string file;  // of kFile
};

struct Ranks {
  int64_t rank = 0;
  int64_t world = 1;
  int64_t local_rank = 0;   // among the ranks of this machine
  int64_t local_world = 1;  // ranks on this machine
  std::string launch;       // names this launch, its restarts included, on this machine
  int64_t restarts = 0;     // how often the launcher has started the ranks again
  std::string launcher;     // "torchrun", "Slurm", "Open MPI", "PMI"; empty without one
  RendezvousEndpoint rendezvous;

  bool one_machine() const { return local_world == world; }
};

/// A variable's value; null where it isn't set.
using Environment = std::function<const char*(const char*)>;

/// The first of torchrun's, Slurm's (inside `srun`), Open MPI's and PMI's variables that are there;
/// one rank where none are. MASTER_ADDR and MASTER_PORT, or BRIM_RENDEZVOUS_FILE (a path that all
/// ranks see), say where ranks meet that a launcher leaves open. Throws Error(kDistributed) naming
/// the variable that is missing or makes no sense.
Ranks read_ranks(const Environment& environment);

/// The same of this process's environment.
Ranks read_ranks();

/// "<process>-<start time>" of the parent, which starts a machine's ranks and starts them again.
std::string parent_launch();

/// The first host of Slurm's list, as in "gpu[08-11,20],login": "gpu08". Empty for no such list.
std::string first_host(const std::string& list);

}  // namespace brim::distributed
