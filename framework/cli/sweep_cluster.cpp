#include "framework/cli/sweep_cluster.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/base/wrapper.h"

namespace brim::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxJobs = 1000;    // Slurm's MaxArraySize is 1001 where no one has set it
constexpr size_t kLongestLabel = 40;  // Kubernetes adds the index, to 63 letters in all

// %A_%a in the names of logs is the array's number and the task's. Two minutes before the time is
// up Slurm sends SIGUSR1; a job that is cancelled gets SIGTERM, with its children, and is over.
constexpr const char* kSlurmScript = R"sh(#!/bin/bash
# A process of the sweep in {place}, which ends when no trial is left to begin.
#SBATCH --nodes=1
#SBATCH --ntasks=1
{gpus}#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120

{program} sweep --resume {folder}{trust} &
sweep=$!
is_time_up=0
trap : TERM
trap 'is_time_up=1; kill -TERM $sweep' USR1
# A signal ends a wait before the sweep has saved its trials.
while wait $sweep; status=$?; ((status > 128)) && kill -0 $sweep 2>/dev/null; do :; done
if ((is_time_up)); then
  scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
fi
exit $status
)sh";

constexpr const char* kKubernetesJob =
    R"yaml(# Processes of the sweep in {folder}, each of which ends when no trial is left to begin:
#
#   kubectl apply --filename {file}
#
# Set what is yours: the image, and the claim, whose volume every pod sees where the sweep lies.
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  completionMode: Indexed
  completions: {jobs}
  parallelism: {jobs} # as many at a time; those without room wait
  backoffLimit: {retries}
  template:
    spec:
      restartPolicy: OnFailure
      terminationGracePeriodSeconds: 300 # for the trials' checkpoints after SIGTERM
      containers:
        - name: sweep
          image: brim:0.2-cuda
          imagePullPolicy: IfNotPresent
          command: {command}
{resources}          volumeMounts:
            - name: sweeps
              mountPath: {mount}
            - name: shared-memory
              mountPath: /dev/shm
      volumes:
        - name: sweeps
          persistentVolumeClaim:
            claimName: brim-runs
        - name: shared-memory # NCCL's, between the ranks of a trial
          emptyDir:
            medium: Memory
            sizeLimit: 16Gi
)yaml";

/// As many as can have a trial at the same time.
int64_t jobs_of(sweep::Store& store, const std::vector<sweep::Trial>& trials) {
  const int64_t unfinished = std::ranges::count_if(trials, sweep::is_unfinished);
  const int64_t per_job = store.plan().per_device;
  return std::clamp((unfinished + per_job - 1) / per_job, int64_t{1}, kMaxJobs);
}

fs::path absolute_folder(const sweep::Store& store) {
  const fs::path folder = fs::absolute(store.folder()).lexically_normal();
  return folder.has_filename() ? folder : folder.parent_path();
}

/// "sweep-lr" of sweeps/lr: lower-case letters, digits and dashes (RFC 1123).
std::string label_of(const fs::path& folder) {
  std::string label = "sweep";
  for (const char c : "-" + folder.filename().string()) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    const bool is_plain = is_upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (is_plain) label += static_cast<char>(is_upper ? c - 'A' + 'a' : c);
    if (!is_plain && label.back() != '-') label += '-';
  }
  label.resize(std::min(label.size(), kLongestLabel));
  while (label.back() == '-') label.pop_back();
  return label;
}

bool is_on_gpus(const sweep::Store& store) { return store.plan().devices != "cpu"; }

/// JSON's strings are YAML's.
std::string in_yaml_quotes(const fs::path& path) {
  return nlohmann::json(path.string())
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// A text that comments hold in one line.
std::string in_one_comment(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, '?');
  return text;
}

/// In Slurm's names of files % begins a pattern.
std::string without_patterns(const std::string& path) {
  std::string plain;
  for (const char c : path) plain += c == '%' ? "%%" : std::string(1, c);
  return plain;
}

/// Where the disk of a folder is mounted; the folder above it where that is the root's.
fs::path mount_of(const fs::path& folder) {
  struct stat own {
  }, above{};
  fs::path mount = folder;
  while (mount.has_relative_path() && ::stat(mount.c_str(), &own) == 0 &&
         ::stat(mount.parent_path().c_str(), &above) == 0 && own.st_dev == above.st_dev) {
    mount = mount.parent_path();
  }
  return mount.has_relative_path() ? mount : folder.parent_path();
}

/// Runs sbatch, whose output goes to stderr, and waits for it. Throws Error(kResource) where it
/// can't be started or fails, with what is to be done then, and Error(kStopped) after a stop.
void call_sbatch(const std::vector<std::string>& words, const std::string& advice) {
  std::vector<char*> list;
  for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  pid_t pid = -1;
  const int problem = ::posix_spawnp(&pid, list[0], &files, nullptr, list.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&files);
  if (problem != 0) {
    throw Error(Exit::kResource, "{} cannot be started: {}; {}", words[0], errno_text(problem),
                advice);
  }
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (sleep_unless_stopped(kStopPoll)) continue;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
    throw Error(Exit::kStopped, "stopped while {} ran; {}", words[0], advice);
  }
  if (status == 0) return;
  throw Error(Exit::kResource, "{} failed; {}", words[0], advice);
}

}  // namespace

void submit_to_slurm(sweep::Store& store, const std::string& options, bool trusts_library) {
  const fs::path folder = absolute_folder(store);
  const fs::path script = folder / "slurm.sbatch";
  const fs::path program = wrapper_of(fs::read_symlink("/proc/self/exe"));
  const int64_t jobs = jobs_of(store, store.trials());
  const std::string gpus =
      is_on_gpus(store) ? fmt::format("#SBATCH --gpus={}\n", store.plan().devices_per_trial) : "";
  write_file(
      script,
      fmt::format(fmt::runtime(kSlurmScript), fmt::arg("place", in_one_comment(folder.string())),
                  fmt::arg("folder", shell_word(folder.string())), fmt::arg("gpus", gpus),
                  fmt::arg("program", shell_word(program.string())),
                  fmt::arg("trust", trusts_library ? " --trust-library" : "")));
  make_folder(folder / "slurm");
  std::vector<std::string> words = {
      "sbatch", fmt::format("--array=1-{}", jobs), "--job-name=" + label_of(folder),
      "--output=" + without_patterns((folder / "slurm").string()) + "/%A_%a.log"};
  std::istringstream more(options);
  for (std::string word; more >> word;) words.push_back(word);
  words.push_back(script.string());
  call_sbatch(words, fmt::format("submit the sweep by trainer sweep --resume {} --slurm",
                                 shell_word(store.folder().string())));
  log::info("jobs of Slurm run it, each until no trial is left; trainer sweep status {} shows it",
            shell_word(store.folder().string()));
}

void write_kubernetes_job(sweep::Store& store, bool trusts_library) {
  const fs::path folder = absolute_folder(store);
  const fs::path file = folder / "kubernetes.yaml";
  const int64_t jobs = jobs_of(store, store.trials());
  std::string command = fmt::format("[trainer, sweep, --resume, {}", in_yaml_quotes(folder));
  command += trusts_library ? ", --trust-library]" : "]";
  const std::string resources = is_on_gpus(store)
                                    ? fmt::format(
                                          "          resources:\n            limits:\n"
                                          "              nvidia.com/gpu: {}\n",
                                          store.plan().devices_per_trial)
                                    : "";
  write_file(file, fmt::format(fmt::runtime(kKubernetesJob),
                               fmt::arg("folder", in_one_comment(folder.string())),
                               fmt::arg("file", in_one_comment(file.string())),
                               fmt::arg("name", label_of(folder)), fmt::arg("jobs", jobs),
                               fmt::arg("retries", 2 * jobs), fmt::arg("command", command),
                               fmt::arg("resources", resources),
                               fmt::arg("mount", in_yaml_quotes(mount_of(folder)))));
  log::info("kubectl apply --filename {} runs it; trainer sweep status {} shows it",
            shell_word(file.string()), shell_word(store.folder().string()));
}

}  // namespace brim::cli
