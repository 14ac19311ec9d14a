// The program `trainer` with own_model.cpp linked in.

#include "framework/cli/program.h"
#include "framework/recipe/library.h"

int main(int argc, char** argv) { return brim::cli::main(argc, argv, brim_register); }
