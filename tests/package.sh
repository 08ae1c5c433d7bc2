#!/usr/bin/env bash
# Installs the build into an empty prefix and follows examples/cmake/README.md there: the programs
# find it, build, and compute what convgrad computes.
set -euo pipefail
root=$1 build_dir=$2 cmake=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$cmake" --install "$build_dir" --prefix "$folder/prefix" >/dev/null
PATH="$folder/prefix/bin:$PATH"
convgrad --version
for file in bash-completion/completions/convgrad zsh/vendor-completions/_convgrad \
  fish/vendor_completions.d/convgrad.fish doc/convgrad/docs/report.schema.json \
  convgrad/suites/resnet50.tsv; do
  [ -s "$folder/prefix/share/$file" ] || { echo "not installed: share/$file" >&2; exit 1; }
done

convgrad bench --list-suites | grep -q '^resnet50 '

"$cmake" -S "$root/examples/cmake" -B "$folder/build" -DCMAKE_PREFIX_PATH="$folder/prefix" >/dev/null
"$cmake" --build "$folder/build" >/dev/null
[ "$("$folder/build/from_memory" | tail -n 1)" = "210 320 540 650" ]
cd "$root/testdata/quickstart"
"$folder/build/from_files" x.npy dy.npy "$folder/dw.npy" 3 2
convgrad --op conv2d -i x.npy -g dy.npy -o "$folder/want.npy" -k 3 -s 2 -p same
cmp "$folder/dw.npy" "$folder/want.npy"
status=0
"$folder/build/from_files" x.npy dy.npy "$folder/dw.npy" 3 1 2>"$folder/error" || status=$?
[ "$status" = 3 ] && [ "$(wc -l <"$folder/error")" = 1 ]
