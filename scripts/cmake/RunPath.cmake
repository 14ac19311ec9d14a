# cmake -D FILE=… -P RunPath.cmake
# Leaves a program or library of a package no run path but ../lib beside its own folder.
file(RPATH_SET FILE "${FILE}" NEW_RPATH "$ORIGIN/../lib")
