#!/usr/bin/env bash
# Installs the build into an empty prefix and follows examples/cmake/README.md there: the programs
# find it, build, and compute what convgrad computes.
set -euo pipefail
root=$1 build_dir=$2 cmake=$3 python=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$cmake" --install "$build_dir" --prefix "$folder/prefix" >/dev/null
PATH="$folder/prefix/bin:$PATH"
convgrad --version
for file in bash-completion/completions/convgrad zsh/vendor-completions/_convgrad \
  doc/convgrad/docs/report.schema.json \
  convgrad/suites/networks.tsv; do
  [ -s "$folder/prefix/share/$file" ] || { echo "not installed: share/$file" >&2; exit 1; }
done

convgrad bench --list-suites | grep -q '^networks '

"$cmake" -S "$root/examples/cmake" -B "$folder/build" -DCMAKE_PREFIX_PATH="$folder/prefix" >/dev/null
"$cmake" --build "$folder/build" >/dev/null
[ "$("$folder/build/from_memory" "$folder/small.npy" | tail -n 1)" = "210 320 540 650" ]
convgrad inspect "$folder/small.npy" | grep -q 'float32 (2, 2, 1, 1)'

# Each installed header compiles alone, from the prefix, and the examples use something that it declares.
for header in "$folder"/prefix/include/convgrad/*.hpp; do
  name=convgrad/$(basename "$header")
  echo "#include <$name>" | "${CXX:-c++}" -std=c++20 -Wall -Werror -I "$folder/prefix/include" -fsyntax-only -x c++ - ||
    { echo "does not compile alone: $name" >&2; exit 1; }
  [ "$name" = convgrad/convgrad.hpp ] && continue
  grep -q "^#include \"$name\"" "$folder/prefix/include/convgrad/convgrad.hpp" ||
    { echo "convgrad.hpp does not include $name" >&2; exit 1; }
  sed -nE 's/^(struct|class) ([A-Za-z0-9]+).*/\2/p; s/^[A-Za-z].* ([a-z0-9_]+)\(.*/\1/p' "$header" >"$folder/declared"
  grep -qwFf "$folder/declared" "$root"/examples/cmake/*.cpp ||
    { echo "no example uses what is in $name" >&2; exit 1; }
done

cd "$root/testdata/quickstart"
"$folder/build/from_files" x.npy dy.npy "$folder/dw.npy" 3 2
convgrad --op conv2d -i x.npy -g dy.npy -o "$folder/want.npy" -k 3 -s 2 -p same
cmp "$folder/dw.npy" "$folder/want.npy"
PYTHONPATH=$folder/prefix/share/convgrad PYTHONDONTWRITEBYTECODE=1 "$python" -m convgrad.plot diff "$folder/dw.npy" -o "$folder/dw.svg"
status=0
"$folder/build/from_files" x.npy dy.npy "$folder/dw.npy" 3 1 2>"$folder/error" || status=$?
[ "$status" = 3 ] && [ "$(wc -l <"$folder/error")" = 1 ]
