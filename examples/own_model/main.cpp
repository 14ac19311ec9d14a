// The program `trainer` with own_model.cpp linked in.

#include <brim/cli/program.h>
#include <brim/recipe/library.h>

int main(int argc, char** argv) { return brim::cli::main(argc, argv, brim_register); }
