#!/bin/sh
# compile.sh DIRECTORY NAME...: compiles bpf/NAME.bpf.c into a directory, without what differs between machines and versions of the compiler.
set -e
to=$1
shift
for order in eb el; do
	for name in "$@"; do
		object=$to/${name}_bpf$order.o
		clang -O2 -mcpu=v3 -Wall -Werror -g -target bpf$order -c bpf/$name.bpf.c -o "$object" \
			-fno-ident -fdebug-prefix-map="$PWD"=. -fdebug-compilation-dir .
		llvm-strip -g "$object"
	done
done
