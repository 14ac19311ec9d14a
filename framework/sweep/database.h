// SQLite (sqlite.org/c3ref) behind two small classes, for files that may come from anyone. Errors
// name the file: kData for one that is damaged or no database, kResource for what the machine
// refuses. One thread at a time; several processes may share a file, and wait 10 s for one another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace brim::sweep {

class Database;

/// One SQL statement, run row by row. Not to outlive its database.
class Statement {
 public:
  Statement(Database& database, std::string_view sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  /// The value of the next '?', from the first on.
  Statement& bind(int64_t value);
  Statement& bind(double value);
  Statement& bind(std::string_view value);

  /// The next row; false where there is none.
  bool step();

  /// A column of the row, from 0 on. Throws Error(kData) where it holds another type.
  int64_t integer(int column);
  double real(int column);
  std::string text(int column);

 private:
  void require(int column, int type);

  Database& database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

class Database {
 public:
  enum class Mode { kCreate, kExisting };  // a file that may not be written is only read

  Database(const std::filesystem::path& path, Mode mode);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  /// Runs statements that give no rows.
  void run(const char* sql);

  [[noreturn]] void fail(int code) const;
  sqlite3* handle() const { return handle_; }

 private:
  std::filesystem::path path_;
  sqlite3* handle_ = nullptr;
};

/// All of what is written while it lives, or nothing: commit() makes it last.
class Transaction {
 public:
  explicit Transaction(Database& database);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool is_open_ = true;
};

}  // namespace brim::sweep
