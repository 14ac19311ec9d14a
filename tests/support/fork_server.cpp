// LD_PRELOADed into a program that the tests run many times. It is loaded once, up to main, which
// takes a quarter of a second where LibTorch registers its operators, and forked for each run. A
// run is a process of its own, with arguments, variables, a working folder and standard streams of
// its own, and a child of the tests'. fork_server.py is the other side.
//
// BRIM_FORK_SERVER: the descriptor of a SOCK_SEQPACKET socket. A message is a run: words, each
// ended by NUL, and the descriptors of the three standard streams. The words are the working
// folder, the number of arguments, these, and the variables as NAME=VALUE. It is answered by the
// process's id, an int. The server ends when the other end of the socket is closed.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);

constexpr size_t kMaxRunBytes = size_t{1} << 18;

Main program = nullptr;

struct Run {
  std::string words;
  std::array<int, 3> streams = {};
};

Run receive(int server) {
  Run run;
  run.words.resize(kMaxRunBytes);
  iovec words = {run.words.data(), run.words.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(run.streams))> control = {};
  msghdr message = {};
  message.msg_iov = &words;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t bytes = ::recvmsg(server, &message, 0);
  if (bytes == 0) ::_exit(0);
  const cmsghdr* streams = CMSG_FIRSTHDR(&message);
  if (bytes < 0 || (message.msg_flags & MSG_TRUNC) != 0 || streams == nullptr ||
      streams->cmsg_len != CMSG_LEN(sizeof(run.streams))) {
    ::_exit(1);
  }
  run.words.resize(static_cast<size_t>(bytes));
  std::memcpy(run.streams.data(), CMSG_DATA(streams), sizeof(run.streams));
  return run;
}

[[noreturn]] void become(Run run, char* name) {
  for (int stream = 0; stream < 3; ++stream) {
    ::dup2(run.streams[stream], stream);
    ::close(run.streams[stream]);
  }
  std::vector<char*> words;
  for (size_t at = 0; at < run.words.size(); at += std::strlen(&run.words[at]) + 1) {
    words.push_back(&run.words[at]);
  }
  const auto first = words.begin() + 2, last = first + std::atoi(words[1]);
  std::vector<char*> arguments = {name}, variables(last, words.end());
  arguments.insert(arguments.end(), first, last);
  arguments.push_back(nullptr);
  variables.push_back(nullptr);
  environ = variables.data();
  if (::chdir(words[0]) != 0) ::_exit(127);
  const int status = program(static_cast<int>(arguments.size()) - 1, arguments.data(), environ);
  // As the trainer ends itself: LibTorch's statics take a tenth of a second to go.
  std::fflush(nullptr);
  std::_Exit(status);
}

/// The id of a process that becomes the run. Its parent ends at once, so that it falls to the
/// tests.
pid_t start(int server, const Run& run, char* name) {
  static auto* const id = static_cast<pid_t*>(
      ::mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t parent = ::fork();
  if (parent == 0) {
    const pid_t process = ::fork();
    if (process == 0) {
      ::close(server);
      become(run, name);
    }
    *id = process;
    ::_exit(0);
  }
  if (parent < 0 || ::waitpid(parent, nullptr, 0) != parent || *id < 0) ::_exit(1);
  return *id;
}

int serve(int, char** arguments, char**) {
  const int server = std::atoi(std::getenv("BRIM_FORK_SERVER"));
  for (;;) {
    const Run run = receive(server);
    const pid_t process = start(server, run, arguments[0]);
    for (const int stream : run.streams) ::close(stream);
    if (::send(server, &process, sizeof(process), MSG_NOSIGNAL) < 0) ::_exit(1);
  }
}

}  // namespace

// The C library's start of a program: it calls main after the constructors.
extern "C" int __libc_start_main(Main main, int argc, char** argv, void* init, void* fini,
                                 void* loader_fini, void* stack_end) {
  program = main;
  const auto start =
      reinterpret_cast<decltype(&__libc_start_main)>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(&serve, argc, argv, init, fini, loader_fini, stack_end);
}
