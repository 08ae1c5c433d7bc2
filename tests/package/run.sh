#!/usr/bin/env bash
# Installs the build into an empty prefix and builds and runs a program that finds it there.
set -euo pipefail
source_dir=$1 build_dir=$2 cmake=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$cmake" --install "$build_dir" --prefix "$folder/prefix" >/dev/null
"$folder/prefix/bin/convgrad" --version
"$cmake" -S "$source_dir" -B "$folder/build" -DCMAKE_PREFIX_PATH="$folder/prefix" >/dev/null
"$cmake" --build "$folder/build" >/dev/null
"$folder/build/uses_convgrad"
