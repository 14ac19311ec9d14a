#include "framework/sweep/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/experiment/run_data.h"

namespace brim::sweep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFile = "sweep.db";
constexpr const char* kNewFile = "sweep.db.new";
constexpr const char* kNewJournal = "sweep.db.new-journal";
constexpr const char* kLock = "lock";
constexpr const char* kRecipe = "recipe.toml";
constexpr const char* kTrialLock = "sweep.lock";  // in the trial's folder
constexpr double kJoinPatience_s = 10.0;
constexpr std::array<std::string_view, 3> kRequestWords = {"run", "pause", "cancel"};
constexpr const char* kTables = R"sql(
PRAGMA application_id = 0x4252494d;
CREATE TABLE sweep (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE trial (
  id INTEGER PRIMARY KEY, settings TEXT NOT NULL, recipe TEXT NOT NULL, steps INTEGER NOT NULL,
  steps_per_epoch INTEGER NOT NULL, schedule_steps INTEGER NOT NULL, state TEXT NOT NULL,
  failures INTEGER NOT NULL, reason TEXT NOT NULL, seconds REAL NOT NULL) STRICT;
CREATE TABLE result (
  trial INTEGER NOT NULL, rung INTEGER NOT NULL, step INTEGER NOT NULL, metric REAL NOT NULL,
  PRIMARY KEY (trial, rung)) STRICT;
)sql";

/// The place of `word` among `words`. Throws Error(kData).
template <class Enum, size_t N>
Enum read_word(const std::array<std::string_view, N>& words, const std::string& word,
               const fs::path& folder) {
  const auto found = std::ranges::find(words, word);
  if (found != words.end()) return static_cast<Enum>(found - words.begin());
  throw Error(Exit::kData, "{}: unknown word {}", (folder / kFile).string(), in_quotes(word));
}

void insert(Database& database, const Trial& trial) {
  Statement(database,
            "INSERT INTO trial (settings, recipe, steps, steps_per_epoch, schedule_steps, state, "
            "failures, reason, seconds) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")
      .bind(nlohmann::json(trial.settings).dump())
      .bind(trial.recipe)
      .bind(trial.steps)
      .bind(trial.steps_per_epoch)
      .bind(trial.schedule_steps)
      .bind(word_of(trial.state))
      .bind(trial.failures)
      .bind(trial.reason)
      .bind(trial.seconds)
      .step();
}

std::vector<std::string> settings_of(const std::string& text, const std::string& where) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> settings;
  for (const nlohmann::json& setting : json) {
    if (setting.is_string()) settings.push_back(setting.get<std::string>());
    if (setting.is_string() && settings.back().find('=') != std::string::npos) continue;
    throw Error(Exit::kData, "{}: expected settings as key=value, found {}", where,
                in_quotes(text));
  }
  return settings;
}

std::string value_of(Database& database, std::string_view key, const fs::path& folder) {
  Statement statement(database, "SELECT value FROM sweep WHERE key = ?");
  statement.bind(key);
  if (statement.step()) return statement.text(0);
  throw Error(Exit::kData, "{}: expected the database of a sweep, found no '{}' in it",
              (folder / kFile).string(), key);
}

fs::path file_in(const fs::path& folder) {
  std::error_code error;
  fs::path file = folder / kFile;
  if (!fs::is_regular_file(file, error)) {
    throw Error(Exit::kData, "{}: expected the folder of a sweep, found no {} in it",
                folder.string(), kFile);
  }
  return file;
}

void require_free(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / kFile, error)) {
    throw Error(Exit::kRecipe,
                "--output {}: holds a sweep already; continue it with trainer sweep --resume {}, "
                "or choose another folder",
                folder.string(), shell_word(folder.string()));
  }
  if (!fs::exists(folder, error)) return;
  bool is_free = fs::is_directory(folder, error);
  // What a sweep leaves that is killed while it makes its folder.
  const bool is_begun = fs::exists(folder / kNewFile, error);
  const std::vector<std::string_view> own =
      is_begun ? std::vector<std::string_view>{kLock, kNewFile, kNewJournal, kRecipe}
               : std::vector<std::string_view>{kLock};
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    is_free = is_free && std::ranges::find(own, entry.path().filename().string()) != own.end();
  }
  if (is_free && !error) return;
  throw Error(Exit::kRecipe, "--output {}: expected a new or an empty folder, found {}",
              folder.string(), fs::is_directory(folder, error) ? "other files in it" : "a file");
}

}  // namespace

std::unique_ptr<FileLock> Store::lock_if_idle(const fs::path& folder) {
  return FileLock::try_lock(folder / kLock);
}

bool Store::is_idle(const fs::path& folder) {
  try {
    return lock_if_idle(folder) != nullptr;
  } catch (const Error&) {
    return false;  // not known: another user's may only be read
  }
}

void Store::create(const fs::path& folder, const Plan& plan, const std::string& recipe,
                   const std::vector<Trial>& trials) {
  require_free(folder);
  make_folder(folder, "; choose another by --output");
  const FileLock held(folder / kLock,
                      fmt::format("--output {}: another process makes a sweep there; choose "
                                  "another folder",
                                  folder.string()));
  require_free(folder);
  const fs::path made = folder / kNewFile;
  std::error_code error;
  fs::remove(made, error);  // of one that was killed here
  fs::remove(folder / kNewJournal, error);
  {
    Database database(made, Database::Mode::kCreate);
    Transaction transaction(database);
    database.run(kTables);
    Statement(database, "INSERT INTO sweep (key, value) VALUES ('plan', ?), ('request', ?)")
        .bind(to_json(plan).dump())
        .bind(kRequestWords[0])
        .step();
    for (const Trial& trial : trials) insert(database, trial);
    transaction.commit();
  }
  write_file(folder / kRecipe, recipe);
  fs::rename(made, folder / kFile, error);  // it is there as a whole or not at all
  if (error) throw Error(Exit::kResource, "{}: {}", (folder / kFile).string(), error.message());
  sync_folder(folder);
}

Store::Store(const fs::path& folder)
    : folder_(folder),
      database_(file_in(folder), Database::Mode::kExisting),
      plan_(plan_of(value_of(database_, "plan", folder), (folder / kFile).string())) {}

fs::path Store::recipe() const { return folder_ / kRecipe; }

fs::path Store::run_folder(const Trial& trial) const {
  return folder_ / "trials" / fmt::format("{:04}", trial.id);
}

std::unique_ptr<FileLock> Store::join() {
  if (const auto alone = lock_if_idle(folder_)) {
    set_request(Request::kRun);
    continue_failed();
  }
  const double end_s = now_s() + kJoinPatience_s;
  for (;;) {
    if (auto joined = FileLock::try_lock(folder_ / kLock, FileLock::Kind::kShared)) return joined;
    if (now_s() > end_s || !sleep_unless_stopped(kStopPoll)) {
      throw Error(Exit::kResource, "{}: another process is changing this sweep; try again",
                  folder_.string());
    }
  }
}

void Store::continue_failed() {
  Statement(database_, "UPDATE trial SET state = ?, failures = 0 WHERE state = ? AND failures >= ?")
      .bind(word_of(State::kStopped))
      .bind(word_of(State::kFailed))
      .bind(kMaxFailures)
      .step();
}

std::optional<RungResult> Store::result_of_run(const Trial& trial, bool latest) const {
  return result_of(experiment::read_run(run_folder(trial)), latest);
}

std::optional<RungResult> Store::result_of(const experiment::RunData& run, bool latest) const {
  const experiment::Series* metric = run.metric("eval_" + plan_.metric);
  if (metric == nullptr || metric->empty()) return std::nullopt;
  const double best = plan_.is_lower_better ? metric->low() : metric->high();
  return RungResult{.step = run.last_step(), .metric = latest ? metric->last() : best};
}

std::optional<RungResult> Store::read_so_far(const Trial& trial) {
  Seen& seen = seen_[trial.id];
  const bool is_running = trial.state == State::kRunning;
  if (!is_running && seen.state == trial.state && seen.reader == nullptr) return seen.so_far;
  seen.state = trial.state;
  if (seen.reader == nullptr) {
    seen.reader = std::make_unique<experiment::RunReader>(run_folder(trial));
  }
  seen.reader->update();
  seen.so_far = result_of(seen.reader->data(), /*latest=*/false);
  if (!is_running) seen.reader.reset();
  return seen.so_far;
}

void Store::look_at_runs(std::vector<Trial>& trials, const FindRun& find) {
  for (Trial& trial : trials) {
    const bool has_ended_well = trial.state == State::kDone || trial.state == State::kPaused;
    std::error_code code;
    if (has_ended_well || !fs::exists(run_folder(trial) / "metrics.jsonl", code)) {
      seen_.erase(trial.id);
      continue;
    }
    try {
      const experiment::RunData* run = find ? find(run_folder(trial)) : nullptr;
      trial.so_far = run != nullptr ? result_of(*run, /*latest=*/false) : read_so_far(trial);
    } catch (const Error&) {
      seen_.erase(trial.id);
      trial.so_far.reset();  // nothing is known of it
    }
  }
}

std::unique_ptr<FileLock> Store::lock_of(const Trial& trial) const {
  make_folder(run_folder(trial));
  return FileLock::try_lock(run_folder(trial) / kTrialLock);
}

std::vector<Trial> Store::trials() {
  std::vector<Trial> trials;
  std::map<int64_t, size_t> places;
  Statement rows(database_,
                 "SELECT id, settings, recipe, steps, steps_per_epoch, schedule_steps, state, "
                 "failures, reason, seconds FROM trial ORDER BY id");
  const std::string where = (folder_ / kFile).string();
  while (rows.step()) {
    Trial trial{.id = rows.integer(0),
                .settings = {},
                .recipe = rows.text(2),
                .steps = rows.integer(3),
                .steps_per_epoch = rows.integer(4),
                .schedule_steps = rows.integer(5),
                .state = read_word<State>(kStateWords, rows.text(6), folder_),
                .failures = rows.integer(7),
                .reason = rows.text(8),
                .seconds = rows.real(9)};
    const bool is_sound = trial.steps >= 0 && trial.steps_per_epoch >= 0 &&
                          trial.steps_per_epoch <= kMaxCount && trial.failures >= 0;
    if (!is_sound)
      throw Error(Exit::kData, "{}: trial {}: its numbers make no trial", where, trial.id);
    trial.settings = settings_of(rows.text(1), where);
    places[trial.id] = trials.size();
    trials.push_back(std::move(trial));
  }
  Statement results(database_, "SELECT trial, step, metric FROM result ORDER BY trial, rung");
  while (results.step()) {
    const auto place = places.find(results.integer(0));
    if (place == places.end()) continue;
    trials[place->second].results.push_back({results.integer(1), results.real(2)});
  }
  return trials;
}

int64_t Store::version() {
  Statement statement(database_, "PRAGMA data_version");
  statement.step();
  return statement.integer(0);
}

void Store::refresh(std::vector<Trial>& trials) {
  const int64_t now = version();
  if (version_ == now) return;
  std::vector<Trial> read = this->trials();
  const bool are_kept =
      std::ranges::equal(trials, std::span(read).first(std::min(trials.size(), read.size())), {},
                         &Trial::id, &Trial::id);
  if (!are_kept) {
    throw Error(Exit::kData, "{}: expected the trials that it had, found that some are gone",
                (folder_ / kFile).string());
  }
  trials = std::move(read);
  version_ = now;
}

/// Within a transaction: what `trials` say is so.
void Store::stop_abandoned(std::vector<Trial>& trials) {
  for (Trial& trial : trials) {
    if (trial.state != State::kRunning || lock_of(trial) == nullptr) continue;
    trial.state = State::kStopped;
    write(trial);
  }
}

void Store::take_back(std::vector<Trial>& trials) {
  Transaction transaction(database_);
  refresh(trials);
  stop_abandoned(trials);
  transaction.commit();
}

std::optional<Claim> Store::claim(std::vector<Trial>& trials, const Choice& choose) {
  Transaction transaction(database_);
  refresh(trials);
  stop_abandoned(trials);
  std::optional<Claim> claim;
  if (const auto chosen = choose(trials)) {
    if (auto lock = lock_of(trials[*chosen]))
      claim.emplace(Claim{.trial = *chosen, .lock = std::move(lock)});
  }
  if (claim) {
    trials[claim->trial].state = State::kRunning;
    write(trials[claim->trial]);
  }
  transaction.commit();
  return claim;
}

void Store::cancel(std::vector<Trial>& trials) {
  Transaction transaction(database_);
  refresh(trials);
  stop_abandoned(trials);
  for (Trial& trial : trials) {
    if (!is_unfinished(trial) || trial.state == State::kRunning) continue;
    trial.state = State::kCancelled;
    write(trial);
  }
  transaction.commit();
}

void Store::update(const Trial& trial) {
  Transaction transaction(database_);
  write(trial);
  transaction.commit();
}

void Store::write(const Trial& trial) {
  Statement(database_,
            "UPDATE trial SET state = ?, failures = ?, reason = ?, seconds = ? WHERE id = ?")
      .bind(word_of(trial.state))
      .bind(trial.failures)
      .bind(trial.reason)
      .bind(trial.seconds)
      .bind(trial.id)
      .step();
  for (size_t rung = 0; rung < trial.results.size(); ++rung) {
    Statement(database_,
              "INSERT OR IGNORE INTO result (trial, rung, step, metric) VALUES (?, ?, ?, ?)")
        .bind(trial.id)
        .bind(static_cast<int64_t>(rung))
        .bind(trial.results[rung].step)
        .bind(trial.results[rung].metric)
        .step();
  }
}

bool Store::add(const std::vector<Trial>& trials, size_t known) {
  Transaction transaction(database_);
  Statement count(database_, "SELECT COUNT(*) FROM trial");
  if (!count.step() || count.integer(0) != static_cast<int64_t>(known)) return false;
  for (const Trial& trial : trials) insert(database_, trial);
  transaction.commit();
  return true;
}

Request Store::request() {
  return read_word<Request>(kRequestWords, value_of(database_, "request", folder_), folder_);
}

void Store::set_request(Request request) {
  Statement(database_, "UPDATE sweep SET value = ? WHERE key = 'request'")
      .bind(kRequestWords[static_cast<size_t>(request)])
      .step();
}

}  // namespace brim::sweep
