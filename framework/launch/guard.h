// A process that outlives a launcher killed by SIGKILL just long enough to end what it had started.
// The kernel ends the workers themselves (PR_SET_PDEATHSIG); their children it would leave.
#pragma once

#include <sys/types.h>

namespace brim::launch {

class Guard {
 public:
  /// Starts the process, as no child of this one: it is in no one's way when children are waited
  /// for. Make it before becoming a subreaper. Throws Error(kResource).
  Guard();
  /// Ends the process and waits for that.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  /// From now on the process group of `pid` is killed when this process dies. To be called between
  /// fork and exec too.
  void add(pid_t pid);
  /// No longer: the number may come to mean another process.
  void remove(pid_t pid);

 private:
  void send(pid_t message);

  int socket_ = -1;
};

}  // namespace brim::launch
