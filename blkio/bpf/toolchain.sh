#!/bin/sh
# Prints the versions that determine the objects: of clang, and of libbpf's headers.
set -e
clang --version | head -n 1
printf '#include <bpf/libbpf_version.h>\nlibbpf LIBBPF_MAJOR_VERSION LIBBPF_MINOR_VERSION\n' | clang -E -P -x c -
