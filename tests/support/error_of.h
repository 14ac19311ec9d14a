// What an action that should fail says.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "framework/base/error.h"

namespace brim {

/// The text of the Error of kind `status` that `action` throws; "no error" where it throws none.
template <class Action>
std::string error_of(Exit status, Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status);
    return error.what();
  }
  return "no error";
}

}  // namespace brim
