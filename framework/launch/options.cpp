#include "framework/launch/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <set>

#include "framework/base/error.h"
#include "framework/base/machine.h"
#include "framework/base/version.h"
#include "framework/base/words.h"
#include "framework/launch/machine.h"
#include "framework/launch/program.h"

namespace brim::launch {
namespace {

constexpr int kMaxRanks = 4096;
constexpr int kMaxNodes = 100000;
constexpr int kMaxPort = 65535;

/// What was read so far, and which names were given.
struct Parsed {
  LaunchOptions options;
  std::set<std::string_view> given;
  std::string (*text)() = nullptr;  // what is asked for instead of a launch
};

int integer(const std::string& name, const std::string& text, int low, int high) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    throw UsageError("{}: expected a number from {} to {}, found '{}'", name, low, high, text);
  }
  return value;
}

int ranks_per_node(const std::string& name, const std::string& text) {
  if (text == "cpu") return usable_cores();
  if (text == "auto" || text == "gpu") {
    const int gpus = visible_gpus();
    if (gpus > 0) return gpus;
    if (text == "auto") return usable_cores();
    throw UsageError(
        "{}: no GPU is visible here (no /dev/nvidia0, or CUDA_VISIBLE_DEVICES is empty); "
        "use cpu or a number",
        name);
  }
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) {
    throw UsageError("{}: expected auto, gpu, cpu or a number, found '{}'", name, text);
  }
  return integer(name, text, 1, kMaxRanks);
}

/// N, or N:N; torchrun's MIN:MAX needs ranks that come and go, which trainrun does not do.
int node_count(const std::string& name, const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return integer(name, text, 1, kMaxNodes);
  const int low = integer(name, text.substr(0, colon), 1, kMaxNodes);
  const int high = integer(name, text.substr(colon + 1), 1, kMaxNodes);
  if (low != high) {
    throw UsageError("{}: trainrun has a fixed number of nodes, found '{}'; give one number", name,
                     text);
  }
  return low;
}

/// "3", or "0:1,1:3" by local rank.
StreamChoice streams(const std::string& name, const std::string& text) {
  StreamChoice choice;
  if (text.find(':') == std::string::npos) {
    choice.every_rank = integer(name, text, 0, 3);
    return choice;
  }
  for (const std::string_view piece : split(text)) {
    const std::string part(piece);
    const size_t colon = part.find(':');
    if (colon == std::string::npos) {
      throw UsageError("{}: expected LOCAL_RANK:STREAMS in '{}', as in 0:1,1:3", name, part);
    }
    const int rank = integer(name, part.substr(0, colon), 0, kMaxRanks - 1);
    choice.by_local_rank[rank] = integer(name, part.substr(colon + 1), 0, 3);
  }
  return choice;
}

Bind binding(const std::string& name, const std::string& text) {
  if (text == "none") return Bind::kNone;
  if (text == "cores") return Bind::kCores;
  if (text == "numa") return Bind::kNuma;
  throw UsageError("{}: expected none, cores or numa, found '{}'", name, text);
}

using Text = const std::string&;

std::string help_text();

std::string version_text() { return fmt::format("brim {} ({})\n", brim_version(), brim_commit()); }

/// HOST, HOST:PORT or [IPv6]:PORT. Without a port it is torchrun's, 29400.
void set_endpoint(Parsed& parsed, Text name, Text text) {
  constexpr int kPort = 29400;
  size_t colon = text.rfind(':');
  const bool is_bracketed = text.starts_with('[');
  if (is_bracketed ? text.find(']') + 1 != colon : text.find(':') != colon) {
    colon = std::string::npos;  // an IPv6 address alone
  }
  std::string host = text.substr(0, colon);
  if (is_bracketed && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) throw UsageError("{}: expected HOST:PORT, found '{}'", name, text);
  parsed.options.master_addr = host;
  parsed.options.master_port =
      colon == std::string::npos ? kPort : integer(name, text.substr(colon + 1), 0, kMaxPort);
  parsed.given.insert({"master-addr", "master-port"});
}

/// torchrun's others need a server of their own.
void check_backend(Text name, Text text) {
  if (text == "c10d" || text == "static") return;
  throw UsageError(
      "{}: expected c10d or static, found '{}'; trainrun's ranks meet at a TCP store on "
      "node 0",
      name, text);
}

/// torchrun's flags that trainrun can't follow, and what to do instead.
struct Refused {
  std::string_view name;
  std::string_view why;
};
constexpr std::array kRefused = {
    Refused{"module", "trainrun starts programs, not Python modules; use torchrun for those"},
    Refused{"m", "trainrun starts programs, not Python modules; use torchrun for those"},
    Refused{"run-path", "trainrun starts programs, not Python scripts; use torchrun for those"},
    Refused{"rdzv-conf",
            "the rendezvous has no settings here; distributed.timeout_s in the recipe "
            "is its timeout"},
    Refused{"role", "all ranks are of one role; leave it out"},
    Refused{"start-method", "ranks are programs, which fork and exec start; leave it out"},
    Refused{"monitor-interval", "a rank's end is noticed at once; leave it out"},
    Refused{"local-addr", "a node needs no address of its own; leave it out"},
};

struct Flag {
  std::string_view name;
  char letter;               // 0: none
  std::string_view operand;  // empty: none is taken
  std::string_view help;
  void (*set)(Parsed& parsed, Text name, Text value);
};

// One line of the table is one option. The name passed to set() says where the value came from.
constexpr std::array kFlags = {
    Flag{"nproc-per-node", 0, "N",
         "ranks on this node: a number, auto (GPUs, else cores), gpu, cpu",
         [](Parsed& p, Text n, Text v) { p.options.ranks_per_node = ranks_per_node(n, v); }},
    Flag{"nnodes", 0, "N", "nodes; each one runs trainrun with the same --nproc-per-node",
         [](Parsed& p, Text n, Text v) { p.options.nodes = node_count(n, v); }},
    Flag{"node-rank", 0, "N", "this node's number, from 0",
         [](Parsed& p, Text n, Text v) { p.options.node_rank = integer(n, v, 0, kMaxNodes); }},
    Flag{"master-addr", 0, "HOST", "the host name or address of node 0",
         [](Parsed& p, Text, Text v) { p.options.master_addr = v; }},
    Flag{"master-port", 0, "PORT",
         "a port that is free on node 0; with one node it needn't be given",
         [](Parsed& p, Text n, Text v) { p.options.master_port = integer(n, v, 0, kMaxPort); }},
    Flag{"rdzv-endpoint", 0, "HOST[:PORT]", "the same as --master-addr and --master-port",
         [](Parsed& p, Text n, Text v) { set_endpoint(p, n, v); }},
    Flag{"rdzv-backend", 0, "NAME", "c10d or static: both mean the rendezvous at --master-addr",
         [](Parsed&, Text n, Text v) { check_backend(n, v); }},
    Flag{"standalone", 0, "", "says that there is one node", [](Parsed&, Text, Text) {}},
    Flag{"max-restarts", 0, "N", "how often to start again after a failure (0)",
         [](Parsed& p, Text n, Text v) { p.options.max_restarts = integer(n, v, 0, 1000000); }},
    Flag{"run-id", 0, "ID", "names the folder of logs, and the run to its workers",
         [](Parsed& p, Text, Text v) { p.options.run_id = v; }},
    Flag{"rdzv-id", 0, "ID", "the same", [](Parsed& p, Text, Text v) { p.options.run_id = v; }},
    Flag{"log-dir", 0, "DIR", "logs of every rank: DIR/RUN_ID/attempt_K/LOCAL_RANK/stderr.log",
         [](Parsed& p, Text, Text v) { p.options.log_folder = v; }},
    Flag{"redirects", 'r', "STREAMS",
         "to log files only: 1 stdout, 2 stderr, 3 both; by local rank: 0:1,1:3",
         [](Parsed& p, Text n, Text v) { p.options.redirects = streams(n, v); }},
    Flag{"tee", 't', "STREAMS", "to log files and to the screen (3 with --log-dir alone)",
         [](Parsed& p, Text n, Text v) { p.options.tee = streams(n, v); }},
    Flag{"local-ranks-filter", 0, "LIST", "the local ranks whose output reaches the screen",
         [](Parsed& p, Text n, Text v) {
           for (const std::string_view part : split(v)) {
             p.options.shown_ranks.push_back(integer(n, std::string(part), 0, kMaxRanks - 1));
           }
         }},
    Flag{"bind", 0, "HOW", "ranks to cores: none (left to the kernel), cores, numa",
         [](Parsed& p, Text n, Text v) { p.options.bind = binding(n, v); }},
    Flag{"stop-timeout", 0, "SECONDS", "for a checkpoint after SIGTERM, SIGINT or SIGHUP (300)",
         [](Parsed& p, Text n, Text v) { p.options.stop_timeout_s = integer(n, v, 1, 1000000); }},
    Flag{"no-python", 0, "", "accepted: programs never are Python scripts",
         [](Parsed&, Text, Text) {}},
    Flag{"version", 0, "", "the version of Brim",
         [](Parsed& p, Text, Text) { p.text = version_text; }},
    Flag{"help", 'h', "", "this text", [](Parsed& p, Text, Text) { p.text = help_text; }},
};

std::string help_text() {
  std::string text =
      "trainrun: starts the ranks of a training run, watches over them, and names the first that "
      "fails\n\n"
      "usage: trainrun [options] PROGRAM [arguments]\n\n"
      "PROGRAM is a path, a program beside trainrun, or one in PATH.\n\n";
  for (const Flag& flag : kFlags) {
    std::string left = flag.letter != 0 ? fmt::format("-{}, ", flag.letter) : "";
    left += fmt::format("--{}{}{}", flag.name, flag.operand.empty() ? "" : "=", flag.operand);
    text += fmt::format("  {:<28}  {}\n", left, flag.help);
  }
  return text;
}

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

const Flag& find_flag(const std::string& word, const std::string& name) {
  std::vector<std::string_view> names;
  for (const Flag& flag : kFlags) {
    if (flag.name == name || (name.size() == 1 && flag.letter == name[0])) return flag;
    names.push_back(flag.name);
  }
  for (const Refused& refused : kRefused) {
    if (refused.name == name) throw UsageError("{}: {}", word, refused.why);
  }
  const std::string near = nearest(name, names);
  throw UsageError("unknown option '{}'; {}", word,
                   near.empty() ? "see trainrun --help" : "did you mean '--" + near + "'?");
}

/// Takes the option at argv[i], and its value where it is the next word; returns the last index
/// used.
int take_option(Parsed& parsed, int argc, char** argv, int i) {
  const std::string word = argv[i];
  const bool is_long = word.starts_with("--");
  const size_t equals = word.find('=');
  const std::string name = with_dashes(word.substr(is_long ? 2 : 1, equals - (is_long ? 2 : 1)));
  if (!is_long && name.size() != 1) {
    throw UsageError("unknown option '{}'; see trainrun --help", word);
  }
  const Flag& flag = find_flag(word, name);
  const std::string shown = "--" + std::string(flag.name);
  std::string value;
  if (flag.operand.empty()) {
    if (equals != std::string::npos) throw UsageError("{} takes no value", shown);
  } else if (equals != std::string::npos) {
    value = word.substr(equals + 1);
  } else if (++i < argc) {
    value = argv[i];
  } else {
    throw UsageError("{} needs a value: {}", shown, flag.operand);
  }
  if (!flag.operand.empty() && value.empty()) {
    throw UsageError("{} needs a value: {}", shown, flag.operand);
  }
  parsed.given.insert(flag.name);
  flag.set(parsed, shown, value);
  return i;
}

/// PET_NNODES for --nnodes, and so on: torchrun's rule, which Kubeflow relies on.
void take_environment(Parsed& parsed) {
  for (const Flag& flag : kFlags) {
    std::string name = "PET_" + std::string(flag.name);
    for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') continue;
    if (flag.operand.empty() && std::string_view(value) != "1") continue;
    parsed.given.insert(flag.name);
    flag.set(parsed, name, value);
  }
}

void require_for_nodes(const Parsed& parsed) {
  if (parsed.options.nodes == 1) return;
  for (const std::string_view name : {"node-rank", "master-addr", "master-port"}) {
    if (!parsed.given.contains(name)) {
      throw UsageError("--nnodes={} needs --{} as well", parsed.options.nodes, name);
    }
  }
  if (parsed.given.contains("standalone")) {
    throw UsageError("--standalone and --nnodes={} contradict each other", parsed.options.nodes);
  }
}

void check_ranks(const std::string& name, const std::vector<int>& ranks, int count) {
  for (const int rank : ranks) {
    if (rank >= count) {
      throw UsageError("{}: there is no local rank {}: {} are started, from 0", name, rank, count);
    }
  }
}

void check_streams(const std::string& name, const StreamChoice& choice, int count) {
  for (const auto& [rank, streams] : choice.by_local_rank) check_ranks(name, {rank}, count);
}

}  // namespace

int StreamChoice::of(int local_rank) const {
  if (by_local_rank.empty()) return every_rank;
  const auto found = by_local_rank.find(local_rank);
  return found == by_local_rank.end() ? 0 : found->second;
}

void validate(const LaunchOptions& options) {
  if (options.node_rank >= options.nodes) {
    throw UsageError("--node-rank: expected less than --nnodes={}, found {}", options.nodes,
                     options.node_rank);
  }
  if (options.nodes > 1 && options.master_port == 0) {
    throw UsageError(
        "--master-port=0: with several nodes all must know the port; give one that is free "
        "on node 0");
  }
  check_ranks("--local-ranks-filter", options.shown_ranks, options.ranks_per_node);
  check_streams("--redirects", options.redirects, options.ranks_per_node);
  check_streams("--tee", options.tee, options.ranks_per_node);
  const std::string& id = options.run_id;
  if (id == "." || id == ".." || id.size() > 200 || id.find('/') != std::string::npos) {
    throw UsageError("--run-id: expected a word that can name a folder, found '{}'", id);
  }
}

std::variant<LaunchOptions, std::string> parse_options(int argc, char** argv) {
  Parsed parsed;
  take_environment(parsed);
  int i = 1;
  for (; i < argc && argv[i][0] == '-' && argv[i][1] != '\0'; ++i) {
    if (std::string_view(argv[i]) == "--") {
      ++i;
      break;
    }
    i = take_option(parsed, argc, argv, i);
    if (parsed.text != nullptr) return parsed.text();
  }
  if (i >= argc) {
    throw UsageError(
        "no program given; try: trainrun --nproc-per-node=auto trainer --recipe digits");
  }
  require_for_nodes(parsed);
  validate(parsed.options);
  parsed.options.command.assign(argv + i, argv + argc);
  parsed.options.command[0] = find_program(parsed.options.command[0]);
  return parsed.options;
}

}  // namespace brim::launch
