#include "framework/sweep/database.h"

#include <sqlite3.h>

#include <string>

#include "framework/base/error.h"

namespace brim::sweep {
namespace {

constexpr int kPatience_ms = 10000;
constexpr int kLongestValue = 16 << 20;

std::string_view name_of(int type) {
  switch (type) {
    case SQLITE_INTEGER:
      return "an integer";
    case SQLITE_FLOAT:
      return "a number";
    case SQLITE_TEXT:
      return "a text";
    default:
      return "nothing";
  }
}

}  // namespace

Database::Database(const std::filesystem::path& path, Mode mode) : path_(path) {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READWRITE;
  if (mode == Mode::kCreate) flags |= SQLITE_OPEN_CREATE;
  if (const int code = ::sqlite3_open_v2(path.c_str(), &handle_, flags, nullptr);
      code != SQLITE_OK) {
    const std::string why = handle_ == nullptr ? "out of memory" : ::sqlite3_errmsg(handle_);
    ::sqlite3_close(handle_);
    throw Error(Exit::kResource, "{}: cannot be opened: {}", path.string(), why);
  }
  ::sqlite3_busy_timeout(handle_, kPatience_ms);
  ::sqlite3_limit(handle_, SQLITE_LIMIT_LENGTH, kLongestValue);
  // A file from elsewhere runs nothing of its own: no functions in its schema, no writing to it.
  ::sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  ::sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  ::sqlite3_db_config(handle_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  ::sqlite3_db_config(handle_, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
}

Database::~Database() { ::sqlite3_close(handle_); }

void Database::run(const char* sql) {
  const int code = ::sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code);
}

void Database::fail(int code) const {
  const int kind = code & 0xff;
  const std::string why = ::sqlite3_errmsg(handle_);
  if (kind == SQLITE_BUSY) {
    throw Error(Exit::kResource, "{}: another process has held it for {} s; try again",
                path_.string(), kPatience_ms / 1000);
  }
  const bool is_of_machine = kind == SQLITE_FULL || kind == SQLITE_IOERR ||
                             kind == SQLITE_CANTOPEN || kind == SQLITE_READONLY ||
                             kind == SQLITE_PERM || kind == SQLITE_NOMEM;
  if (is_of_machine) throw Error(Exit::kResource, "{}: {}", path_.string(), why);
  throw Error(Exit::kData, "{}: expected the database of a sweep: {}", path_.string(), why);
}

Statement::Statement(Database& database, std::string_view sql) : database_(database) {
  const int code = ::sqlite3_prepare_v2(database.handle(), sql.data(), static_cast<int>(sql.size()),
                                        &statement_, nullptr);
  if (code != SQLITE_OK) database.fail(code);
}

Statement::~Statement() { ::sqlite3_finalize(statement_); }

Statement& Statement::bind(int64_t value) {
  if (const int code = ::sqlite3_bind_int64(statement_, ++bound_, value)) database_.fail(code);
  return *this;
}

Statement& Statement::bind(double value) {
  if (const int code = ::sqlite3_bind_double(statement_, ++bound_, value)) database_.fail(code);
  return *this;
}

Statement& Statement::bind(std::string_view value) {
  const int code = ::sqlite3_bind_text(statement_, ++bound_, value.data(),
                                       static_cast<int>(value.size()), SQLITE_TRANSIENT);
  if (code != SQLITE_OK) database_.fail(code);
  return *this;
}

bool Statement::step() {
  const int code = ::sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_.fail(code);
  return false;
}

void Statement::require(int column, int type) {
  const int found = ::sqlite3_column_type(statement_, column);
  if (found == type) return;
  throw Error(Exit::kData, "{}: column '{}': expected {}, found {}",
              ::sqlite3_db_filename(database_.handle(), "main"),
              ::sqlite3_column_name(statement_, column), name_of(type), name_of(found));
}

int64_t Statement::integer(int column) {
  require(column, SQLITE_INTEGER);
  return ::sqlite3_column_int64(statement_, column);
}

double Statement::real(int column) {
  require(column, SQLITE_FLOAT);
  return ::sqlite3_column_double(statement_, column);
}

std::string Statement::text(int column) {
  require(column, SQLITE_TEXT);
  const auto* const bytes =
      reinterpret_cast<const char*>(::sqlite3_column_text(statement_, column));
  return {bytes, static_cast<size_t>(::sqlite3_column_bytes(statement_, column))};
}

Transaction::Transaction(Database& database) : database_(database) {
  database.run("BEGIN IMMEDIATE");
}

Transaction::~Transaction() {
  if (is_open_) ::sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() {
  database_.run("COMMIT");
  is_open_ = false;
}

}  // namespace brim::sweep
